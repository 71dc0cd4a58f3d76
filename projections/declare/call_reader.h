#pragma once

#include <string>

#include "projections/declare/handler_reader.h"
#include "projections/plan/group_plan.h"

namespace lockstep::projections {

// Reads one entry of `handlers:`: which events it wants, and the function or the endpoint that is
// called with them. Mistakes are reported.
void ReadCalls(YamlFile& file, const GroupScope& group, const YAML::Node& node, GroupPlan* plan);

}  // namespace lockstep::projections
