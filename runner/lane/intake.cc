#include "runner/lane/intake.h"

#include <utility>

#include "runner/message/event_parser.h"
#include "runner/message/mapping.h"

namespace lockstep::runner {
namespace {

constexpr char kHeartbeat[] = "lockstep_heartbeat";

// Not an event that has an attribute of that name: it would be acked unapplied.
bool IsHeartbeat(const pubsub::Message& message) {
  return message.attributes.contains(kHeartbeat) && !message.attributes.contains("event_id");
}

}  // namespace

Prepared Prepare(std::vector<LaneQueue::Waiting> deliveries, GroupContext& group,
                 const state::GroupEpoch& under) {
  Prepared prepared;
  prepared.events.reserve(deliveries.size());
  for (LaneQueue::Waiting& waiting : deliveries) {
    pubsub::Delivery& delivery = waiting.delivery;
    if (IsHeartbeat(delivery.message)) {
      group.metrics.Heartbeat(delivery.publish_time);
      prepared.to_ack_only.push_back(std::move(delivery.token));
      continue;
    }
    if (under.skip_before && delivery.publish_time < *under.skip_before) {
      prepared.to_ack_only.push_back(std::move(delivery.token));
      continue;
    }
    Inbound item = EventParser::Parse(std::move(delivery), waiting.received_at);
    if (!item.poison) MapEvent(*group.projector, item);
    prepared.events.push_back(std::move(item));
  }
  return prepared;
}

}  // namespace lockstep::runner
