#include "platform/log/fault_limit.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep::log {

// Texts of errors are others' to choose: beyond these, the faults of a message are one.
constexpr size_t kMostFaults = 200;

void FaultLimit::Restart() {
  const std::scoped_lock lock(mu_);
  faults_.clear();
}

bool FaultLimit::Begins(const LineKind& kind, SteadyTime now) {
  const std::scoped_lock lock(mu_);
  auto found = faults_.find(kind);
  if (found == faults_.end() && faults_.size() >= kMostFaults) {
    found = faults_.find({.level = kind.level, .message = kind.message});
  }
  if (found != faults_.end() &&
      (found->second.times > 0 || now - found->second.met < options_.over)) {
    ++found->second.times;
    found->second.met = now;
    return false;
  }
  const bool room = found != faults_.end() || faults_.size() < kMostFaults;
  faults_[room ? kind : LineKind{.level = kind.level, .message = kind.message}] = {
      .told = now, .met = now, .wait = options_.first};
  return true;
}

std::vector<RepeatLimit::Told> FaultLimit::TakeDue(SteadyTime now) {
  const std::scoped_lock lock(mu_);
  std::vector<RepeatLimit::Told> due;
  for (auto at = faults_.begin(); at != faults_.end();) {
    Fault& fault = at->second;
    bool over = fault.times == 0 && now - fault.met >= options_.over;
    if (fault.times > 0 && now - fault.told >= fault.wait) {
      due.push_back({at->first, std::exchange(fault.times, 0)});
      fault.told = now;
      fault.wait = std::min(2 * fault.wait, options_.longest);
      over = now == SteadyTime::max();
    }
    at = over ? faults_.erase(at) : std::next(at);
  }
  return due;
}

}  // namespace lockstep::log
