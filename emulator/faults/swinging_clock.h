#pragma once

#include "platform/clock.h"

namespace lockstep::emulator {

// A server whose clock is not that of its clients: it goes ahead of this machine's by `reach`, then
// behind by as much, once a minute. Publish times follow it (on a topic they never go back);
// leases, which go by the steady clock, don't.
class SwingingClock : public Clock {
 public:
  explicit SwingingClock(Millis reach) : reach_(reach) {}

  WallTime Now() const override {
    constexpr int64_t kHalf = 30'000;  // ms
    const WallTime now = System().Now();
    const int64_t at = now.time_since_epoch() / Millis(1) % (2 * kHalf);
    const int64_t rise = at < kHalf ? at : 2 * kHalf - at;  // 0 … kHalf … 0
    return now + reach_ * (2 * rise - kHalf) / kHalf;
  }
  SteadyTime Steady() const override { return System().Steady(); }

 private:
  const Millis reach_;
};

}  // namespace lockstep::emulator
