#include "projections/declare/group_file.h"

#include <google/protobuf/descriptor.h>

#include <utility>

#include "platform/config/config.h"
#include "platform/config/yaml_file.h"
#include "platform/status.h"
#include "platform/text.h"
#include "projections/declare/call_reader.h"
#include "projections/declare/fingerprint.h"
#include "projections/declare/handler_reader.h"

namespace lockstep::projections {
namespace {

const std::vector<std::string> kGroupKeys = {
    "group",    "subscription",      "settings",    "descriptors", "messages",
    "envelope", "undeclared_events", "projections", "handlers"};

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

// A hash of all that decides how events become rows. Not of names of files: they differ from host
// to host.
std::string MappingOf(const YamlFile& file, const YAML::Node& root) {
  Fingerprint hash;
  for (const char* key : {"group", "messages", "envelope", "undeclared_events", "projections"}) {
    hash.Add(YamlFile::Child(root, key));
  }
  const YAML::Node descriptors = YamlFile::Child(root, "descriptors");
  const auto add_file = [&](const YAML::Node& name) {
    if (name.IsScalar()) hash.Add(ReadWholeFile(file.Resolve(name.Scalar())).value_or(""));
  };
  if (!descriptors.IsDefined()) return hash.Hex();
  if (descriptors.IsSequence()) {
    for (const auto& name : descriptors) add_file(name);
  } else {
    add_file(descriptors);
  }
  return hash.Hex();
}

const std::vector<std::string> kProjectionKeys = {
    "name", "table", "key", "version", "updated_at", "deleted_at", "aggregate", "on_gap", "events"};

// Reads one projection: the table, and what its events do to it.
class ProjectionReader {
 public:
  ProjectionReader(YamlFile& file, const GroupScope& group, GroupPlan* plan)
      : file_(file), group_(group), plan_(*plan) {}

  void Read(const YAML::Node& node) {
    if (!file_.CheckMap(node, "projection", kProjectionKeys)) return;
    table_.place = file_.Place(node);
    table_.projection = file_.Required(node, "name", "give the projection a name");
    ReadTableName(node);
    table_.version = file_.Text(node, "version").value_or("");
    table_.updated_at = file_.Text(node, "updated_at").value_or("");
    table_.deleted_at = file_.Text(node, "deleted_at").value_or("");
    table_.aggregate = file_.Text(node, "aggregate").value_or("");
    ProjectionScope scope{file_, group_, table_, YamlFile::Child(node, "key"),
                          ReadOnGap(file_, node)};
    ReadKeyColumns(node);
    const YAML::Node events = node["events"];
    if (!events.IsDefined() || !events.IsMap() || events.size() == 0) {
      file_.Error(events.IsDefined() ? events : node,
                  "'events' is missing; name at least one event type and its operation");
      return;
    }
    file_.CheckMap(events, "events", {});
    for (const auto& event : events) ReadEvent(event.first, event.second, scope);
    CheckOperations(node, scope.versioned);
    plan_.AddTable(std::move(table_));
  }

 private:
  void ReadTableName(const YAML::Node& node) {
    const std::string name = file_.Required(node, "table", "name the table as schema.table");
    if (name.empty()) return;
    auto parsed = postgres::QualifiedName::Parse(name);
    if (!parsed.ok()) {
      file_.Error(node["table"], "{}", MessageOf(parsed.status()));
      return;
    }
    table_.name = *std::move(parsed);
    table_.name.name += plan_.table_suffix;
    for (const Table& other : plan_.tables) {
      if (other.name == table_.name) {
        file_.Error(node["table"],
                    "table {} belongs to projection {} already; a table has one projection, put "
                    "the events together",
                    name, other.projection);
      }
      if (other.projection == table_.projection) {
        file_.Error(node["name"], "there is a projection {} already; give this one another name",
                    table_.projection);
      }
    }
  }

  void ReadKeyColumns(const YAML::Node& node) {
    const YAML::Node key = node["key"];
    if (key.IsDefined() && key.IsMap()) {
      file_.CheckMap(key, "key", {});
      for (const auto& column : key) table_.key.push_back({column.first.Scalar(), {}});
    } else {
      for (const YAML::Node& column : file_.Scalars(key, "key")) {
        table_.key.push_back({column.Scalar(), {}});
      }
    }
    if (table_.key.empty()) {
      file_.Error(key.IsDefined() ? key : node, "'key' is missing; name the table's key columns");
    }
  }

  void ReadEvent(const YAML::Node& type, const YAML::Node& node, ProjectionScope& scope) {
    EventMapping& mapping = plan_.mappings.events[type.Scalar()];
    mapping.envelope = group_.envelope;
    Route route;
    route.table = static_cast<uint32_t>(plan_.tables.size());
    if (node.IsSequence()) {
      for (const auto& item : node) ReadHandler(scope, type, item, &mapping, &route);
    } else {
      ReadHandler(scope, type, node, &mapping, &route);
    }
    mapping.routes.push_back(std::move(route));
  }

  // What the operations want of the projection's columns.
  void CheckOperations(const YAML::Node& node, bool versioned) {
    if (!versioned && !table_.counting) {
      file_.Error(node, "projection {} ignores every event; give it one that writes",
                  table_.projection);
    }
    if (versioned && table_.version.empty()) {
      file_.Error(node, "'version' is missing; name the column that holds the row's version");
    }
    if (!table_.counting) return;
    if (!table_.version.empty()) {
      file_.Error(node["version"],
                  "a counting table has no version: it is fed by many aggregates, and the inbox "
                  "keeps it exact; leave version out");
    }
    if (!table_.deleted_at.empty()) {
      file_.Error(node["deleted_at"], "nothing is deleted from a counting table; leave it out");
    }
    if (!table_.aggregate.empty()) {
      file_.Error(node["aggregate"],
                  "a counting table is fed by many aggregates; leave aggregate out");
    }
  }

  YamlFile& file_;
  const GroupScope& group_;
  GroupPlan& plan_;
  Table table_;
};

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
  const YAML::Node handlers = root["handlers"];
  const auto code = options.code.find(plan.group);
  const bool others = code != options.code.end() || handlers.IsDefined();
  if (projections.IsDefined() && projections.IsSequence()) {
    for (const auto& item : projections) ProjectionReader(file, scope, &plan).Read(item);
  } else if (!others || (projections.IsDefined() && !projections.IsNull())) {
    file.Error(projections.IsDefined() ? projections : root,
               "'projections' is missing; a list of at least one projection is wanted, or one of "
               "handlers");
  }
  if (handlers.IsDefined() && handlers.IsSequence() && handlers.size() > 0) {
    for (const auto& item : handlers) ReadCalls(file, scope, item, &plan);
  } else if (handlers.IsDefined()) {
    file.Error(handlers, "handlers: a list of at least one handler is wanted");
  }
  RETURN_IF_ERROR(file.status());
  plan.mapping = MappingOf(file, root);
  if (handlers.IsDefined()) {
    Fingerprint hash;
    hash.Add(handlers);
    declaration->handlers = hash.Hex();
  }
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

}  // namespace lockstep::projections
