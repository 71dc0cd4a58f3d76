#include "fuzz/fuzz_target.h"
#include "platform/duration.h"
#include "runner/message/inbound.h"

using lockstep::WallTime;
using lockstep::runner::Inbound;

namespace {

// Lines of name=value; the first line is the ordering key.
lockstep::pubsub::Delivery ToDelivery(std::string_view input) {
  lockstep::pubsub::Delivery delivery;
  bool first = true;
  while (!input.empty()) {
    const std::string_view line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(input.size(), line.size() + 1));
    if (first) {
      delivery.message.ordering_key = line;
    } else {
      const size_t sign = std::min(line.find('='), line.size());
      delivery.message.attributes[std::string(line.substr(0, sign))] =
          line.substr(std::min(sign + 1, line.size()));
    }
    first = false;
  }
  return delivery;
}

}  // namespace

// The attributes of a message: an event as docs/wire.md says, or poison with a reason.
LOCKSTEP_FUZZ_TARGET(attributes) {
  const Inbound inbound(ToDelivery(input), WallTime());
  for (const auto& [name, value] : inbound.event.attributes) {
    LOCKSTEP_HOLDS(name.find('\0') == std::string::npos);
    LOCKSTEP_HOLDS(value.find('\0') == std::string::npos);
  }
  if (inbound.poison.has_value()) {
    LOCKSTEP_HOLDS(!inbound.poison->code.empty());
    LOCKSTEP_HOLDS(inbound.poison->reason.size() <= 2048);
    return;
  }
  LOCKSTEP_HOLDS(inbound.ordered());
  LOCKSTEP_HOLDS(inbound.event.version > 0);
  LOCKSTEP_HOLDS(inbound.event.event_id.value().size() == 36);
  // What was read as a time is written as that time.
  const auto again = lockstep::ParseTimestamp(lockstep::FormatTimestamp(inbound.event.occurred_at));
  LOCKSTEP_HOLDS(again.ok() && *again == inbound.event.occurred_at);
}
