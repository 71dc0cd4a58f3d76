#include "projections/declare/message_scope.h"

#include <google/protobuf/descriptor.h>

#include "platform/config/config.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
namespace {

// The one message whose last name is the event type.
const pb::Descriptor* MessageNamedLike(YamlFile& file, const YAML::Node& at,
                                       const Descriptors& descriptors) {
  const std::string& type = at.Scalar();
  std::vector<std::string> found;
  for (const std::string& name : descriptors.names()) {
    if (name == type || name.ends_with("." + type)) found.push_back(name);
  }
  if (found.size() == 1) return descriptors.Find(found[0]);
  if (found.empty()) {
    file.Error(at,
               "no message named {} is in the descriptor sets; say which with message: (or "
               "message: none for JSON alone). They hold {}",
               type, fmt::join(descriptors.names(), ", "));
  } else {
    file.Error(at, "event {} could be {}; say which with message:", type, fmt::join(found, " or "));
  }
  return nullptr;
}

bool EnterEnvelope(YamlFile& file, const Envelope& envelope, const YAML::Node& at,
                   EventMapping* mapping, FieldScope* fields) {
  if (envelope.message == nullptr || envelope.message == fields->message) return true;
  const pb::OneofDescriptor* payload = envelope.payload;
  for (int i = 0; i < payload->field_count(); ++i) {
    const pb::FieldDescriptor* member = payload->field(i);
    if (member->message_type() != fields->message) continue;
    fields->json_prefix = {member->name(), member->json_name()};
    mapping->json_members.emplace_back(fields->message,
                                       mapping->json.AddPresence({fields->json_prefix}));
    return true;
  }
  file.Error(at, "the envelope {} has no {} in its oneof {}", envelope.message->full_name(),
             fields->message->full_name(), payload->name());
  return false;
}

}  // namespace

const pb::Descriptor* FindMessage(YamlFile& file, const YAML::Node& at, const std::string& name,
                                  const Descriptors& descriptors) {
  if (descriptors.empty()) {
    file.Error(at, "a message is named, and no descriptor set; add descriptors: [file.pb]");
    return nullptr;
  }
  const pb::Descriptor* found = descriptors.Find(name);
  if (found != nullptr) return found;
  const std::string nearest = NearestWord(name, descriptors.names());
  file.Error(at, "message {} is not in the descriptor sets; {}", name,
             nearest.empty() ? fmt::format("they hold {}", fmt::join(descriptors.names(), ", "))
                             : fmt::format("did you mean {}?", nearest));
  return nullptr;
}

std::optional<FieldScope> FindScope(YamlFile& file, const GroupScope& group, const YAML::Node& type,
                                    const YAML::Node& node, EventMapping* mapping) {
  FieldScope fields{group.descriptors, group.used, mapping->json};
  const auto named = node.IsMap() ? file.Text(node, "message") : std::nullopt;
  if (named.has_value()) {
    if (*named == "none") return fields;
    fields.message = FindMessage(file, node["message"], *named, group.descriptors);
  } else if (const auto listed = group.messages.find(type.Scalar());
             listed != group.messages.end()) {
    fields.message = listed->second;
  } else if (group.descriptors.empty()) {
    return fields;  // plain JSON
  } else {
    fields.message = MessageNamedLike(file, type, group.descriptors);
  }
  if (fields.message == nullptr || !EnterEnvelope(file, group.envelope, type, mapping, &fields)) {
    return std::nullopt;
  }
  return fields;
}

}  // namespace lockstep::projections
