#pragma once

#include <deque>
#include <mutex>

#include "platform/clock.h"

namespace lockstep::runner {

// A run of dead letters is a mistake in a schema or a source, not in messages: past the budget
// the group stops instead of emptying its stream into the dead letters. Safe from any thread.
class DeadLetterBudget {
 public:
  // `limit` within `window`; 0 = no limit.
  DeadLetterBudget(int limit, Millis window, const Clock& clock = Clock::System())
      : limit_(limit), window_(window), clock_(clock) {}

  // Whether `count` more would still be within it.
  bool Allows(int count) {
    std::lock_guard lock(mu_);
    Forget();
    return limit_ <= 0 || static_cast<int>(spent_.size()) + count <= limit_;
  }
  void Spend(int count) {
    std::lock_guard lock(mu_);
    if (limit_ > 0) spent_.insert(spent_.end(), count, clock_.Steady());
  }

  int limit() const { return limit_; }
  Millis window() const { return window_; }

 private:
  void Forget() {
    while (!spent_.empty() && clock_.Steady() - spent_.front() > window_) spent_.pop_front();
  }

  const int limit_;
  const Millis window_;
  const Clock& clock_;
  std::mutex mu_;
  std::deque<SteadyTime> spent_;
};

}  // namespace lockstep::runner
