#pragma once

#include <cstdint>

#include "platform/clock.h"

namespace lockstep::chaos {

inline SteadyTime Now() { return Clock::System().Steady(); }

// The same in every process of this machine.
inline int64_t Millisecond(SteadyTime time) {
  return std::chrono::duration_cast<Millis>(time.time_since_epoch()).count();
}

}  // namespace lockstep::chaos
