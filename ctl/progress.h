#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ctl/group_context.h"

namespace lockstep::ctl {

// Rate and remaining time out of counts that are looked at now and then: over the last ten seconds,
// so that neither the start nor a pause of long ago spoils the estimate. Owned by one thread.
class Pace {
 public:
  void Note(double seconds, int64_t done);  // since the start; both only grow
  double per_second() const;
  std::optional<double> SecondsFor(int64_t left) const;  // none while nothing moves

 private:
  struct Look {
    double seconds;
    int64_t done;
  };
  static constexpr double kWindow = 10;
  std::vector<Look> looks_;
};

// "[#######.............]  35%  350,000 of 1,000,000  52,100/s  12s left"
std::string ProgressLine(int64_t done, int64_t total, const Pace& pace);

// Follows a reset until what it brought back is worked off: until `total` messages were handled
// under `epoch`, or the runners have had nothing to do for a while. Ends at once, with a sentence,
// when nobody runs.
absl::Status FollowReplay(RunnerContext& runner, const std::string& group, int64_t epoch,
                          int64_t total, bool quiet);

}  // namespace lockstep::ctl
