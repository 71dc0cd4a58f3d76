#include "publisher/observe/readiness.h"

#include <fmt/format.h>

#include <set>

namespace lockstep::publisher {

std::vector<std::string> Readiness::Judge(const std::vector<std::string>& subjects,
                                          const std::vector<Trouble>& faults, SteadyTime now) {
  const std::scoped_lock lock(mu_);
  std::set<std::string> faulty;
  std::vector<std::string> reasons;
  for (const Trouble& fault : faults) {
    faulty.insert(fault.subject);
    const auto well = well_.find(fault.subject);
    if (well != well_.end() && now - well->second <= grace_) continue;
    reasons.push_back(fmt::format("{}: {}", fault.subject, fault.why));
  }
  for (const std::string& subject : subjects) {
    if (!faulty.contains(subject)) well_[subject] = now;
  }
  return reasons;
}

}  // namespace lockstep::publisher
