#include "runner/message/event_parser.h"

#include <utility>

namespace lockstep::runner {

Inbound EventParser::Parse(pubsub::Delivery delivery, WallTime received_at) {
  Inbound inbound;
  inbound.token = std::move(delivery.token);
  inbound.message_id = std::move(delivery.message_id);
  inbound.ordering_key = std::move(delivery.message.ordering_key);
  inbound.publish_time = delivery.publish_time;
  inbound.received_at = received_at;
  inbound.event.payload = std::move(delivery.message.data);
  inbound.event.attributes = std::move(delivery.message.attributes);
  ReadAttributes(inbound);
  return inbound;
}

}  // namespace lockstep::runner
