#include "runner/message/inbound.h"

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "platform/status.h"

namespace lockstep::runner {

Inbound::Inbound(pubsub::Delivery delivery, WallTime received)
    : token(std::move(delivery.token)), received_at(received) {
  message_id = std::move(delivery.message_id);
  ordering_key = std::move(delivery.message.ordering_key);
  publish_time = delivery.publish_time;
  event.payload = std::move(delivery.message.data);
  event.attributes = std::move(delivery.message.attributes);
  ReadAttributes(*this);
}

Inbound::Inbound(envelope::Received kept)
    : Received(std::move(kept)), received_at(Clock::System().Now()) {}

const Inbound* NewestOf(std::span<Inbound* const> items) {
  const Inbound* newest = nullptr;
  const auto position = [](const Inbound& item) {
    return std::tie(item.publish_time, item.message_id);
  };
  for (const Inbound* const item : items) {
    if (item->aside || (newest != nullptr && position(*item) <= position(*newest))) continue;
    newest = item;
  }
  return newest;
}

WallTime OldestOf(std::span<Inbound* const> items) {
  WallTime oldest = WallTime::max();
  for (const Inbound* const item : items) {
    if (!item->aside) oldest = std::min(oldest, item->publish_time);
  }
  return oldest;
}

void MapEvent(const projections::Projector& projector, Inbound& item) {
  try {
    auto change = projector.Map(item.event);
    if (change.ok()) {
      item.change = *std::move(change);
    } else if (item.event.is_snapshot() && absl::IsFailedPrecondition(change.status())) {
      item.poison = Poison::SnapshotRefused(MessageOf(change.status()));
    } else {
      item.poison = Poison::MappingFailed(MessageOf(change.status()));
    }
  } catch (const std::exception& e) {
    item.poison = Poison::MappingFailed(e.what());
  }
}

}  // namespace lockstep::runner
