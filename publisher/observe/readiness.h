#pragma once

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/status.h"

namespace lockstep::publisher {

// Whether a part of a publisher does its work.
struct Health {
  std::string subject;  // a table, or the session that holds the shards
  absl::Status status;  // OK, or why not
  // When it was last seen at work; now, unless it says so. One that hangs can't report that yet.
  std::optional<SteadyTime> at_work = std::nullopt;
};

// From faults to readiness: a fault counts once it has lasted for the grace period, so that a
// database that restarts takes no publisher out of service; at the start it counts at once. Asked
// once a second by the status page and by every probe. Safe from any thread.
class Readiness {
 public:
  explicit Readiness(Millis grace) : grace_(grace) {}

  // One sentence per fault that counts; none = ready.
  std::vector<std::string> Judge(const std::vector<Health>& parts, SteadyTime now) {
    const std::scoped_lock lock(mu_);
    std::vector<std::string> reasons;
    for (const auto& [subject, status, at_work] : parts) {
      if (status.ok()) {
        well_[subject] = at_work.value_or(now);
      } else if (const auto well = well_.find(subject);
                 well == well_.end() || now - well->second > grace_) {
        reasons.push_back(fmt::format("{}: {}", subject, MessageOf(status)));
      }
    }
    return reasons;
  }

 private:
  const Millis grace_;
  std::mutex mu_;
  std::map<std::string, SteadyTime> well_;  // when each was last seen without a fault
};

}  // namespace lockstep::publisher
