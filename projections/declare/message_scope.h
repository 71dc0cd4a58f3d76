#pragma once

#include <map>
#include <optional>
#include <string>

#include "projections/declare/value_reader.h"
#include "projections/declare/yaml_file.h"
#include "projections/decode/mapping.h"

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

// Which message the fields of an event are those of: what `message:` of its mapping (`node`) says,
// else `messages:` of the group, else the message that is named like the event. With an envelope it
// is the member of its oneof. Nothing when that is wrong (reported at `type`, the event's).
std::optional<FieldScope> FindScope(YamlFile& file, const GroupScope& group, const YAML::Node& type,
                                    const YAML::Node& node, EventMapping* mapping);

}  // namespace lockstep::projections
