#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <mutex>
#include <string>

#include "platform/clock.h"
#include "platform/duration.h"

namespace lockstep::runner {

// A run of dead letters is a mistake in a schema or a source, not in messages: past the budget
// the group stops instead of emptying its stream into the dead letters. Safe from any thread.
class DeadLetterBudget {
 public:
  // `limit` within `window`; 0 = no limit.
  DeadLetterBudget(int limit, Millis window, const Clock& clock = Clock::System())
      : limit_(limit), window_(window), clock_(clock) {}

  // How many more would still be within it.
  int Left() {
    std::lock_guard lock(mu_);
    while (!spent_.empty() && clock_.Steady() - spent_.front() > window_) spent_.pop_front();
    if (limit_ <= 0) return std::numeric_limits<int>::max();
    return std::max(0, limit_ - static_cast<int>(spent_.size()));
  }
  void Spend(int count) {
    std::lock_guard lock(mu_);
    if (limit_ > 0) spent_.insert(spent_.end(), count, clock_.Steady());
  }

  // One more would have been too many, and was not written. That stays so until a restart: the
  // window passes, the mistake does not.
  void Exceed() {
    std::lock_guard lock(mu_);
    exceeded_ = true;
  }
  bool exceeded() const {
    std::lock_guard lock(mu_);
    return exceeded_;
  }
  // For whoever has to cure it.
  std::string Reason() const {
    return fmt::format(
        "more than {} dead letters within {}: look at `lockstepctl dead-letters list`, cure the "
        "cause, then restart the runner",
        limit_, FormatDuration(window_));
  }

 private:
  const int limit_;
  const Millis window_;
  const Clock& clock_;
  mutable std::mutex mu_;
  std::deque<SteadyTime> spent_;
  bool exceeded_ = false;
};

}  // namespace lockstep::runner
