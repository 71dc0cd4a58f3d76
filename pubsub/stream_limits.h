#pragma once

#include <algorithm>
#include <chrono>

#include "platform/clock.h"

namespace lockstep::pubsub {

// A stream's share of a limit for all of them.
inline int64_t PerStream(int64_t limit, int streams) {
  streams = std::max(1, streams);
  return std::max<int64_t>(1, (limit + streams - 1) / streams);
}

// The deadline of a stream's messages, as the server takes it.
inline std::chrono::seconds StreamDeadline(Millis ack_deadline) {
  return std::clamp(std::chrono::ceil<std::chrono::seconds>(ack_deadline), std::chrono::seconds(10),
                    std::chrono::seconds(600));
}

}  // namespace lockstep::pubsub
