#pragma once

#include "projections/declare/message_scope.h"
#include "projections/declare/yaml_file.h"
#include "projections/plan/group_plan.h"

namespace lockstep::projections {

// Reads one item of `projections:` into the plan. Mistakes are reported to the file.
void ReadProjection(YamlFile& file, const YAML::Node& node, const GroupScope& scope,
                    GroupPlan* plan);

}  // namespace lockstep::projections
