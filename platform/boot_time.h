#pragma once

#include <time.h>

#include "platform/clock.h"

namespace lockstep {

// Goes on while the machine sleeps, as steady_clock does not: for limits that others count by a
// clock of their own. Compare it with itself only.
inline SteadyTime BootTime() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return SteadyTime(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace lockstep
