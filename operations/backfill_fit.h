#pragma once

#include <vector>

#include "absl/status/status.h"
#include "projections/plan/group_plan.h"
#include "publisher/backfill/declaration.h"
#include "runner/batch/batch.h"

namespace lockstep::operations {

// Whether a group can take what the backfill sends: no table refuses its snapshots, one at least
// is filled by them, and where events merge they wait for them.
absl::Status CheckFits(const publisher::Declaration& declaration,
                       const projections::GroupPlan& group, runner::Baseline baseline);

// The same for all of them; and whether they fill every table of the group from nothing.
absl::Status CheckFill(const std::vector<publisher::Declaration>& declarations,
                       const projections::GroupPlan& group);

}  // namespace lockstep::operations
