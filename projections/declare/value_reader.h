#pragma once

#include <optional>
#include <string>
#include <vector>

#include "platform/config/yaml_file.h"
#include "projections/plan/group_plan.h"

namespace lockstep::projections {

// What a mapping's fields are looked up in.
struct FieldScope {
  const Descriptors& descriptors;
  std::vector<UsedField>& used;  // gets the message fields that are named
  JsonReader& json;
  const google::protobuf::Descriptor* message = nullptr;  // null = JSON only
  // Names of the envelope's member in JSON; empty = the event itself.
  std::vector<std::string> json_prefix = {};
};

struct ReadValue {
  ValueSource source;
  ColumnUse use;
};

// Reads `title`, `{field: title}`, `{attribute: topic}`, `{value: 1}` or `{now: true}`. nullopt
// when it was wrong, which is then reported.
std::optional<ReadValue> ReadValueSource(YamlFile& file, const YAML::Node& node,
                                         const FieldScope& scope, Operation operation);

// Reads `when:`: one condition or a list of them, all of which must hold.
std::vector<Condition> ReadConditions(YamlFile& file, const YAML::Node& node,
                                      const FieldScope& scope);

}  // namespace lockstep::projections
