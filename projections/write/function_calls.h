#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "projections/model/cells.h"
#include "projections/model/projector.h"
#include "projections/plan/group_plan.h"

namespace lockstep::projections {

// Calls the functions that a group's handlers name, each once per batch with all its events, in the
// batch's transaction, after the tables. Safe from any thread.
class FunctionCalls {
 public:
  // REQUIRES: `plan` outlives it.
  explicit FunctionCalls(const GroupPlan& plan);

  // What the functions raise is the status, to be classified like any other. Of a change that some
  // function was called with it is noted that it was applied.
  absl::Status Run(postgres::Transaction& transaction, const std::vector<const Change*>& changes,
                   const ApplyOptions& options, std::vector<Outcome>* outcomes) const;

  // Another signature may stand there by now.
  void Forget() const;

 private:
  absl::StatusOr<std::shared_ptr<const std::string>> SqlOf(postgres::Transaction& transaction,
                                                           uint32_t call) const;

  const GroupPlan& plan_;
  std::vector<std::string> names_;  // of the prepared statements, by call

  mutable std::mutex mu_;
  mutable std::vector<std::shared_ptr<const std::string>> sql_;  // by call; null = not looked at
};

}  // namespace lockstep::projections
