#include "emulator/core/timekeeper.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::emulator {
namespace {

// How often to look at a clock that a test moves; nothing tells us when it does.
constexpr Millis kTick{10};
constexpr SteadyTime::duration kLongest = std::chrono::hours(1);

}  // namespace

void Timekeeper::Stop() {
  thread_.Stop();
  std::scoped_lock lock(mu_);
  scheduled_.clear();
}

void Timekeeper::At(SteadyTime time, std::function<void()> run) {
  std::scoped_lock lock(mu_);
  if (thread_.stopping()) return;
  const auto added = scheduled_.emplace(time, std::move(run));
  if (added == scheduled_.begin()) changed_.notify_all();
}

void Timekeeper::Loop() {
  const std::stop_token stop = thread_.stop_token();
  std::unique_lock lock(mu_);
  while (!stop.stop_requested()) {
    const SteadyTime now = clock_.Steady();
    std::vector<std::function<void()>> due;
    while (!scheduled_.empty() && scheduled_.begin()->first <= now) {
      due.push_back(std::move(scheduled_.begin()->second));
      scheduled_.erase(scheduled_.begin());
    }
    if (due.empty()) {
      const bool ticks_by_itself = &clock_ == &Clock::System();
      const SteadyTime first = scheduled_.empty() ? now + kLongest : scheduled_.begin()->first;
      changed_.wait_for(
          lock, stop,
          ticks_by_itself ? std::min(first - now, kLongest) : SteadyTime::duration(kTick),
          [&] { return !scheduled_.empty() && scheduled_.begin()->first < first; });
      continue;
    }
    lock.unlock();
    for (auto& run : due) run();
    lock.lock();
  }
}

}  // namespace lockstep::emulator
