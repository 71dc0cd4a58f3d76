#include "publisher/observe/readiness.h"

#include <fmt/format.h>

#include "platform/status.h"

namespace lockstep::publisher {

std::vector<std::string> Readiness::Judge(const std::vector<Health>& parts, SteadyTime now) {
  const std::scoped_lock lock(mu_);
  std::vector<std::string> reasons;
  for (const auto& [subject, status] : parts) {
    if (status.ok()) {
      well_[subject] = now;
    } else if (const auto well = well_.find(subject);
               well == well_.end() || now - well->second > grace_) {
      reasons.push_back(fmt::format("{}: {}", subject, MessageOf(status)));
    }
  }
  return reasons;
}

}  // namespace lockstep::publisher
