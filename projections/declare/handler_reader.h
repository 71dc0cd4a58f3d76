#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "platform/config/yaml_file.h"
#include "projections/plan/group_plan.h"

namespace lockstep::projections {

// What a group's file says once for all its projections.
struct GroupScope {
  const Descriptors& descriptors;
  std::vector<UsedField>& used;
  Envelope envelope = {};
  // Event type → message, from `messages:`.
  std::map<std::string, const google::protobuf::Descriptor*> messages = {};
};

// The message of that name; null when there is none (reported, with the nearest).
const google::protobuf::Descriptor* FindMessage(YamlFile& file, const YAML::Node& at,
                                                const std::string& name,
                                                const Descriptors& descriptors);

// What a projection says for all its events, and what is learnt from them.
struct ProjectionScope {
  YamlFile& file;
  const GroupScope& group;
  Table& table;                // has its names and key columns; gets the others and its operations
  const YAML::Node key;        // the projection's `key:`
  std::optional<bool> on_gap;  // whether it parks; nullopt = not said
  bool versioned = false;      // some event replaces, merges or deletes
  // Of a handler, which calls something instead: what adds that, and what its events call that name
  // nothing themselves.
  std::function<std::optional<uint32_t>(const YAML::Node& at, const std::string& target)> add_call =
      {};
  std::string call = {};
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
