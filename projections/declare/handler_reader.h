#pragma once

#include <optional>

#include "projections/declare/message_scope.h"
#include "projections/declare/yaml_file.h"
#include "projections/plan/group_plan.h"

namespace lockstep::projections {

// What a projection says for all its events, and what is learnt from them.
struct ProjectionScope {
  YamlFile& file;
  const GroupScope& group;
  Table& table;                // has its names and key columns; gets the others and its operations
  const YAML::Node key;        // the projection's `key:`
  std::optional<bool> on_gap;  // whether it parks; nullopt = not said
  bool versioned = false;      // some event replaces, merges or deletes
};

// `on_gap:` of a projection or a mapping: whether it parks. nullopt = not said.
inline std::optional<bool> ReadOnGap(YamlFile& file, const YAML::Node& node) {
  return file.Either(node, "on_gap", "park", "apply");
}

// Reads one mapping of the event type: an operation, its conditions, where its key and its columns
// come from. Nothing is added to the route when it is wrong (reported).
void ReadHandler(ProjectionScope& scope, const YAML::Node& type, const YAML::Node& node,
                 EventMapping* mapping, Route* route);

}  // namespace lockstep::projections
