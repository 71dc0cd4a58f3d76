#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "ctl/group/runner_context.h"

namespace lockstep::ctl {

// How much was done, out of what instances report: one that ends, and one that counts anew from
// nothing, take nothing away from it.
class HandledByInstances {
 public:
  void Note(const std::string& instance, int64_t handled);
  int64_t sum() const { return sum_; }

 private:
  std::map<std::string, int64_t> last_;
  int64_t sum_ = 0;
};

// Follows a reset until what it brought back is worked off: until `total` messages were handled
// under `epoch`, or the runners have had nothing to do for a while. Ends at once, with a sentence,
// when nobody runs.
absl::Status FollowReplay(RunnerContext& runner, const std::string& group, int64_t epoch,
                          int64_t total, bool json);

}  // namespace lockstep::ctl
