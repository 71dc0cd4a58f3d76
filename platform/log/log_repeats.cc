#include "platform/log/log_repeats.h"

namespace lockstep::log {

constexpr size_t kMostKinds = 1'000;  // kinds are few by design; more of them are not limited

void RepeatLimit::Restart(Options options) {
  const std::scoped_lock lock(mu_);
  options_ = options;
  windows_.clear();
}

bool RepeatLimit::Allow(const LineKind& kind, SteadyTime now) {
  const std::scoped_lock lock(mu_);
  if (options_.burst <= 0) return true;
  auto found = windows_.find(kind);
  if (found == windows_.end()) {
    if (windows_.size() >= kMostKinds) {
      std::erase_if(windows_, [&](const auto& entry) {
        return entry.second.left_out == 0 && Over(entry.second, now);
      });
      if (windows_.size() >= kMostKinds) return true;
    }
    found = windows_.emplace(kind, Window{.began = now}).first;
  }
  Window& window = found->second;
  // What was left out of the window before is told first: TakeDue.
  if (Over(window, now) && window.left_out == 0) window = {.began = now};
  if (window.written < options_.burst) {
    ++window.written;
    return true;
  }
  ++window.left_out;
  return false;
}

std::vector<RepeatLimit::Told> RepeatLimit::TakeDue(SteadyTime now) {
  const std::scoped_lock lock(mu_);
  std::vector<Told> due;
  std::erase_if(windows_, [&](const auto& entry) {
    const auto& [kind, window] = entry;
    const bool over = Over(window, now);
    if (over && window.left_out > 0) due.push_back({kind, window.left_out});
    return over;
  });
  return due;
}

}  // namespace lockstep::log
