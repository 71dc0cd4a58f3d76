#pragma once

#include "projections/group_projector.h"
#include "projections/message_scope.h"
#include "projections/yaml_file.h"

namespace lockstep::projections {

// Reads one item of `projections:` into the plan. Mistakes are reported to the file.
void ReadProjection(YamlFile& file, const YAML::Node& node, const GroupScope& scope,
                    GroupPlan* plan);

}  // namespace lockstep::projections
