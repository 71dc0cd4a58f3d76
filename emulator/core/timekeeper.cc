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

absl::Status Timekeeper::Start() {
  std::scoped_lock lock(mu_);
  if (!stopping_) thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void Timekeeper::Stop() {
  std::thread ended;
  {
    std::scoped_lock lock(mu_);
    stopping_ = true;
    scheduled_.clear();
    ended = std::move(thread_);
    changed_.notify_all();
  }
  if (ended.joinable()) ended.join();
}

void Timekeeper::At(SteadyTime time, std::function<void()> run) {
  std::scoped_lock lock(mu_);
  if (stopping_) return;
  const auto added = scheduled_.emplace(time, std::move(run));
  if (added == scheduled_.begin()) changed_.notify_all();
}

void Timekeeper::Loop() {
  std::unique_lock lock(mu_);
  while (!stopping_) {
    if (scheduled_.empty()) {
      changed_.wait(lock, [this] { return stopping_ || !scheduled_.empty(); });
      continue;
    }
    const SteadyTime now = clock_.Steady();
    std::vector<std::function<void()>> due;
    while (!scheduled_.empty() && scheduled_.begin()->first <= now) {
      due.push_back(std::move(scheduled_.begin()->second));
      scheduled_.erase(scheduled_.begin());
    }
    if (due.empty()) {
      const bool ticks_by_itself = &clock_ == &Clock::System();
      changed_.wait_for(lock, ticks_by_itself ? std::min(scheduled_.begin()->first - now, kLongest)
                                              : SteadyTime::duration(kTick));
      continue;
    }
    lock.unlock();
    for (auto& run : due) run();
    lock.lock();
  }
}

}  // namespace lockstep::emulator
