#pragma once

#include <vector>

#include "absl/status/status.h"
#include "projections/write/group_projector.h"

// The side of GroupProjector that calls projections written in C++, and fences what they throw.
namespace lockstep::projections {

// Adds the projection's tables to the plan.
absl::Status AddCode(std::shared_ptr<const Projection> projection, GroupPlan* plan);

absl::Status MapCode(const GroupPlan& plan, const Event& event, MappedChange* change);

// One that throws when it is asked has the event wait: that keeps its order, whatever it meant.
bool CodeParksOnGap(const GroupPlan& plan, const Event& event);

absl::Status WriteCode(const GroupPlan& plan, postgres::Transaction& transaction,
                       const std::vector<const Change*>& changes, const ApplyOptions& options,
                       std::vector<Outcome>* outcomes);

}  // namespace lockstep::projections
