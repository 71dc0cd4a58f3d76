#include "projections/declare/projection_reader.h"

#include "platform/status.h"
#include "projections/declare/handler_reader.h"

namespace lockstep::projections {
namespace {

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

}  // namespace

void ReadProjection(YamlFile& file, const YAML::Node& node, const GroupScope& scope,
                    GroupPlan* plan) {
  ProjectionReader(file, scope, plan).Read(node);
}

}  // namespace lockstep::projections
