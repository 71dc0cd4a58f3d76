#pragma once

#include <mutex>

#include "platform/clock.h"

namespace lockstep::testing {

// A clock that stands still until told. Safe from any thread.
class FakeClock : public Clock {
 public:
  WallTime Now() const override;
  SteadyTime Steady() const override;
  void Advance(Millis by);

 private:
  mutable std::mutex mu_;
  Millis elapsed_{0};
};

}  // namespace lockstep::testing
