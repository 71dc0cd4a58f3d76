#include "platform/log/log_repeats.h"

namespace lockstep::log {

// Others than us have a say in what tells sources apart (a topic, a key), so that there may be any
// number of them: beyond these, the lines of a message are counted together.
constexpr size_t kMostSources = 50;
constexpr size_t kMostKinds = 1'000;

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
    const LineKind together{.level = kind.level, .message = kind.message};
    size_t sources = 0;
    for (auto same = windows_.lower_bound(together);
         same != windows_.end() && same->first.message == kind.message; ++same) {
      ++sources;
    }
    const bool room = sources < kMostSources && windows_.size() < kMostKinds;
    found = windows_.try_emplace(room ? kind : together, Window{.began = now}).first;
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
