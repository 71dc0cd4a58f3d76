#include "tests/support/fake_clock.h"

namespace lockstep::testing {

WallTime FakeClock::Now() const {
  std::scoped_lock lock(mu_);
  return WallTime(std::chrono::seconds(1'700'000'000)) + elapsed_;
}

SteadyTime FakeClock::Steady() const {
  std::scoped_lock lock(mu_);
  return SteadyTime(std::chrono::hours(1)) + elapsed_;
}

void FakeClock::Advance(Millis by) {
  std::scoped_lock lock(mu_);
  elapsed_ += by;
}

}  // namespace lockstep::testing
