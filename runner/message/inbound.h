#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "envelope/event.h"
#include "platform/clock.h"
#include "platform/strong_id.h"
#include "projections/model/projector.h"
#include "pubsub/message.h"

namespace lockstep::runner {

// Why a message can't be applied, ever (docs/errors.md lists the codes).
struct Poison {
  std::string code;
  std::string reason;  // at most 2 KiB, never a payload
  bool blocks = true;  // false: another event has its version, so nothing waits for it
};

// One message in the runner's hands, from its delivery (or from parking, or out of the dead
// letters) to its end. Moves along the pipeline; always in one thread's hands.
struct Inbound {
  pubsub::AckToken token;  // empty when it did not come from the bus
  MessageId message_id;
  std::string ordering_key;
  WallTime publish_time;
  WallTime received_at;

  // Attributes and payload always; the rest as far as it could be read.
  envelope::Event event;
  std::string aggregate_key;  // empty when the aggregate could not be read
  bool has_version = false;

  std::unique_ptr<projections::Change> change;  // null when poisoned
  std::optional<Poison> poison;
  int attempts = 0;  // transactions that failed with it

  // Whether it has a place in the order of an aggregate. What has none blocks nothing.
  bool ordered() const { return !aggregate_key.empty() && has_version && !event.event_id.empty(); }
};

}  // namespace lockstep::runner
