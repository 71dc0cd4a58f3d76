#include "publisher/relay/draining.h"

#include <algorithm>
#include <utility>

#include "platform/status.h"

namespace lockstep::publisher {

absl::Status Draining::Wait(const std::function<void()>& wake) {
  std::unique_lock lock(mu_);
  // Two rounds: the first may have begun before the caller's rows were there.
  const int64_t enough = empty_rounds_ + 2;
  const int64_t too_many = stuck_rounds_ + 2;
  awaited_rounds_ = std::max(awaited_rounds_, enough);
  lock.unlock();
  wake();
  lock.lock();
  changed_.wait(lock, [&] {
    return gave_up_ || (empty_ && empty_rounds_ >= enough) || stuck_rounds_ >= too_many;
  });
  if (gave_up_) return Unavailable("{} was not drained: it was stopped", table_);
  if (stuck_rounds_ < too_many) return absl::OkStatus();
  return Unavailable("{} was not drained: {}", table_, MessageOf(stuck_));
}

bool Draining::Awaited() const {
  std::scoped_lock lock(mu_);
  return empty_rounds_ < awaited_rounds_;
}

void Draining::FoundRows() {
  std::scoped_lock lock(mu_);
  empty_ = false;
}

void Draining::FoundNothing() {
  std::scoped_lock lock(mu_);
  empty_ = true;
  ++empty_rounds_;
  changed_.notify_all();
}

void Draining::Stuck(absl::Status why) {
  std::scoped_lock lock(mu_);
  stuck_ = std::move(why);
  ++stuck_rounds_;
  changed_.notify_all();
}

void Draining::GiveUp() {
  std::scoped_lock lock(mu_);
  gave_up_ = true;
  changed_.notify_all();
}

}  // namespace lockstep::publisher
