#pragma once

#include "platform/clock.h"

namespace lockstep::chaos {

inline SteadyTime Now() { return Clock::System().Steady(); }

}  // namespace lockstep::chaos
