#include "sagas/engine/places.h"

#include <algorithm>
#include <utility>

namespace lockstep::sagas {

void Places::Set(std::map<std::string, int> limits) {
  const std::scoped_lock lock(mu_);
  limits_ = std::move(limits);
}

Place Places::Take(const std::string& kind, const std::string& saga) {
  if (kind.empty()) return {this, [](const void*) {}};
  {
    const std::scoped_lock lock(mu_);
    const auto own = limits_.find(kind);
    const int limit = own == limits_.end() ? otherwise_ : own->second;
    int& taken = taken_[kind];
    if (limit > 0 && taken >= limit) {
      std::deque<std::string>& waiting = waiting_[kind];
      if (std::ranges::find(waiting, saga) == waiting.end()) waiting.push_back(saga);
      return nullptr;
    }
    ++taken;
  }
  return {this, [this, kind](const void*) { Give(kind); }};
}

void Places::Give(const std::string& kind) {
  std::string next;
  {
    const std::scoped_lock lock(mu_);
    const auto taken = taken_.find(kind);
    if (--taken->second == 0) taken_.erase(taken);
    const auto waiting = waiting_.find(kind);
    if (waiting == waiting_.end()) return;
    next = std::move(waiting->second.front());
    waiting->second.pop_front();
    if (waiting->second.empty()) waiting_.erase(waiting);
  }
  told_(next);
}

}  // namespace lockstep::sagas
