#pragma once

#include <string>

#include "projections/plan/group_plan.h"

namespace lockstep::projections {

// CREATE SCHEMA and CREATE TABLE for every table of the group, with types inferred from what is
// mapped into them.
std::string CreateTables(const GroupPlan& plan);

}  // namespace lockstep::projections
