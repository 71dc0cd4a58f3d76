#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/clock.h"

namespace lockstep::envelope {

// An event as its outbox has it, without what it says: to be compared with what a consumer has.
struct SourceEvent {
  std::string event_id;
  std::string aggregate_key;
  int64_t version = 0;
  std::string event_type;
  std::string message_id;
  std::string state;  // published, pending, dead or quarantined
  std::optional<WallTime> published;
};

}  // namespace lockstep::envelope
