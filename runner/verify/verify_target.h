#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "projections/plan/group_plan.h"
#include "publisher/backfill/declaration.h"
#include "verify/plan.h"

namespace lockstep::runner {

// A source that a group's tables are compared with, and which tables.
struct VerifyTarget {
  std::string file;  // of the backfill, absolute
  publisher::Declaration declaration;
  std::vector<verify::VerifyTable> tables;
};

// The files of a schedule against the group's projections. Fails with a sentence when one can't be
// read, or nothing of the group can be compared with it.
absl::StatusOr<std::vector<VerifyTarget>> LoadVerifyTargets(const std::vector<std::string>& files,
                                                            const projections::GroupPlan& group);

}  // namespace lockstep::runner
