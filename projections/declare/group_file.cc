#include "projections/declare/group_file.h"

#include <google/protobuf/descriptor.h>

#include <utility>

#include "platform/config/config.h"
#include "platform/status.h"
#include "projections/declare/projection_reader.h"
#include "projections/declare/yaml_file.h"
#include "projections/write/code_projection.h"
#include "projections/write/group_projector.h"

namespace lockstep::projections {
namespace {

const std::vector<std::string> kGroupKeys = {
    "group",    "subscription", "settings",          "descriptors",
    "messages", "envelope",     "undeclared_events", "projections"};

void ReadSettings(YamlFile& file, const YAML::Node& node, const std::string& prefix,
                  std::map<std::string, Setting>* settings) {
  if (!node.IsDefined() || node.IsNull()) return;
  if (!file.CheckMap(node, "settings", {})) return;
  for (const auto& item : node) {
    const std::string key = prefix + item.first.Scalar();
    if (item.second.IsMap()) {
      ReadSettings(file, item.second, key + ".", settings);
      continue;
    }
    std::vector<std::string> parts;
    for (const YAML::Node& value : file.Scalars(item.second, key)) parts.push_back(value.Scalar());
    (*settings)[key] = {fmt::format("{}", fmt::join(parts, ",")), file.Place(item.second)};
  }
}

void ReadDescriptors(YamlFile& file, const YAML::Node& node, Descriptors* descriptors) {
  for (const YAML::Node& item : file.Scalars(node, "descriptors")) {
    const absl::Status loaded = descriptors->LoadFile(file.Resolve(item.Scalar()));
    if (!loaded.ok()) file.Error(item, "{}", MessageOf(loaded));
  }
}

void ReadEnvelope(YamlFile& file, const YAML::Node& node, const Descriptors& descriptors,
                  Envelope* envelope) {
  if (!node.IsDefined() || node.IsNull()) return;
  if (!file.CheckMap(node, "envelope", {"message", "oneof"})) return;
  const std::string name = file.Required(node, "message", "name the message that holds the events");
  const std::string oneof = file.Required(node, "oneof", "name the oneof that holds the event");
  if (name.empty() || oneof.empty()) return;
  envelope->message = FindMessage(file, node["message"], name, descriptors);
  if (envelope->message == nullptr) return;
  envelope->payload = envelope->message->FindOneofByName(oneof);
  if (envelope->payload != nullptr) return;
  std::vector<std::string> names;
  for (int i = 0; i < envelope->message->real_oneof_decl_count(); ++i) {
    names.push_back(envelope->message->oneof_decl(i)->name());
  }
  file.Error(node["oneof"], "message {} has no oneof '{}'; it has {}", name, oneof,
             names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  envelope->message = nullptr;
}

void ReadMessages(YamlFile& file, const YAML::Node& node, GroupScope* scope) {
  if (!node.IsDefined() || node.IsNull() || !file.CheckMap(node, "messages", {})) return;
  for (const auto& item : node) {
    const auto* found = FindMessage(
        file, item.second, item.second.IsScalar() ? item.second.Scalar() : "", scope->descriptors);
    if (found != nullptr) scope->messages[item.first.Scalar()] = found;
  }
}

absl::StatusOr<GroupPlan> ReadPlan(const std::string& path, const LoadOptions& options,
                                   GroupDeclaration* declaration) {
  YamlFile file(path);
  RETURN_IF_ERROR(file.Load());
  const YAML::Node& root = file.root();
  if (!file.CheckMap(root, "group file", kGroupKeys)) return file.status();
  GroupPlan plan;
  plan.table_suffix = options.table_suffix;
  plan.state_schema = options.state_schema;
  plan.mappings.descriptors = std::make_shared<Descriptors>();
  plan.group = file.Required(root, "group", "name the consumer group");
  declaration->file = path;
  declaration->name = ConsumerGroup(plan.group);
  declaration->subscription =
      file.Required(root, "subscription", "name the Pub/Sub subscription of the group");
  ReadSettings(file, root["settings"], "", &declaration->settings);
  ReadDescriptors(file, root["descriptors"], plan.mappings.descriptors.get());
  GroupScope scope{*plan.mappings.descriptors, plan.fields};
  ReadEnvelope(file, root["envelope"], *plan.mappings.descriptors, &scope.envelope);
  ReadMessages(file, root["messages"], &scope);
  plan.mappings.ignore_undeclared =
      file.Either(root, "undeclared_events", "ignore", "dead_letter").value_or(false);
  const YAML::Node projections = root["projections"];
  const auto code = options.code.find(plan.group);
  if (projections.IsDefined() && projections.IsSequence()) {
    for (const auto& item : projections) ReadProjection(file, item, scope, &plan);
  } else if (code == options.code.end() || (projections.IsDefined() && !projections.IsNull())) {
    file.Error(projections.IsDefined() ? projections : root,
               "'projections' is missing; a list of at least one projection is wanted");
  }
  RETURN_IF_ERROR(file.status());
  if (code != options.code.end()) {
    for (const auto& projection : code->second) RETURN_IF_ERROR(AddCode(projection, &plan));
  }
  return plan;
}

}  // namespace

absl::StatusOr<GroupPlan> LoadPlan(const std::string& path, const LoadOptions& options,
                                   GroupDeclaration* declaration) {
  try {
    return ReadPlan(path, options, declaration);
  } catch (const YAML::Exception& e) {  // a shape that no check foresaw
    return InvalidArgument("{}:{}:{}: {}", path, e.mark.line + 1, e.mark.column + 1, e.msg);
  }
}

absl::StatusOr<GroupDeclaration> LoadGroup(const std::string& file, const LoadOptions& options) {
  GroupDeclaration declaration;
  ASSIGN_OR_RETURN(GroupPlan plan, LoadPlan(file, options, &declaration));
  declaration.projector = std::make_unique<GroupProjector>(std::move(plan));
  return declaration;
}

}  // namespace lockstep::projections
