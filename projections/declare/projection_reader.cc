#include "projections/declare/projection_reader.h"

#include "platform/status.h"
#include "projections/declare/handler_reader.h"

namespace lockstep::projections {
namespace {

const std::vector<std::string> kProjectionKeys = {
    "name", "table", "key", "version", "updated_at", "deleted_at", "aggregate", "on_gap", "events"};

// Reads one projection: the table, and through a HandlerReader what its events do to it.
class ProjectionReader {
 public:
  ProjectionReader(YamlFile& file, const GroupScope& scope, GroupPlan* plan)
      : file_(file), scope_(scope), plan_(*plan) {}

  void Read(const YAML::Node& node) {
    if (!file_.CheckMap(node, "projection", kProjectionKeys)) return;
    table_.place = file_.Place(node);
    table_.projection = file_.Required(node, "name", "give the projection a name");
    ReadTableName(node);
    table_.version = file_.Text(node, "version").value_or("");
    table_.updated_at = file_.Text(node, "updated_at").value_or("");
    table_.deleted_at = file_.Text(node, "deleted_at").value_or("");
    table_.aggregate = file_.Text(node, "aggregate").value_or("");
    const std::optional<bool> on_gap = ReadOnGap(file_, node);
    ReadKeyColumns(node);
    const YAML::Node events = node["events"];
    if (!events.IsDefined() || !events.IsMap() || events.size() == 0) {
      file_.Error(events.IsDefined() ? events : node,
                  "'events' is missing; name at least one event type and its operation");
      return;
    }
    file_.CheckMap(events, "events", {});
    HandlerReader handlers(file_, scope_, YamlFile::Child(node, "key"), on_gap, &plan_, &table_);
    for (const auto& event : events) ReadEvent(event.first, event.second, handlers);
    Finish(node, handlers.versioned());
  }

 private:
  void ReadTableName(const YAML::Node& node) {
    const std::string name = file_.Required(node, "table", "name the table as schema.table");
    if (name.empty()) return;
    auto parsed = postgres::QualifiedName::Parse(name);
    if (!parsed.ok()) {
      file_.Error(node["table"], MessageOf(parsed.status()));
      return;
    }
    table_.name = *std::move(parsed);
    table_.name.name += plan_.table_suffix;
    for (const Table& other : plan_.tables) {
      if (other.name == table_.name) {
        file_.Error(node["table"],
                    fmt::format("table {} belongs to projection {} already; a table has one "
                                "projection, put the events together",
                                name, other.projection));
      }
      if (other.projection == table_.projection) {
        file_.Error(node["name"], fmt::format("there is a projection {} already; give this one "
                                              "another name",
                                              table_.projection));
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

  void ReadEvent(const YAML::Node& type_node, const YAML::Node& node, HandlerReader& handlers) {
    const std::string type = type_node.Scalar();
    EventMapping& mapping = plan_.mappings.events[type];
    mapping.envelope = scope_.envelope;
    Route route;
    route.table = static_cast<uint32_t>(plan_.tables.size());
    if (node.IsSequence()) {
      for (const auto& item : node) handlers.Read(type, type_node, item, mapping, &route);
    } else {
      handlers.Read(type, type_node, node, mapping, &route);
    }
    mapping.routes.push_back(std::move(route));
  }

  void Finish(const YAML::Node& node, bool versioned) {
    if (!versioned && !table_.counting) {
      file_.Error(node, fmt::format("projection {} ignores every event; give it one that writes",
                                    table_.projection));
    }
    if (versioned && table_.version.empty()) {
      file_.Error(node, "'version' is missing; name the column that holds the row's version");
    }
    if (table_.counting && !table_.version.empty()) {
      file_.Error(node["version"],
                  "a counting table has no version: it is fed by many "
                  "aggregates, and the inbox keeps it exact; leave version out");
    }
    if (table_.counting && !table_.deleted_at.empty()) {
      file_.Error(node["deleted_at"], "nothing is deleted from a counting table; leave it out");
    }
    if (table_.counting && !table_.aggregate.empty()) {
      file_.Error(node["aggregate"],
                  "a counting table is fed by many aggregates; leave aggregate out");
    }
    const auto values = static_cast<uint32_t>(table_.values.size());
    for (auto& [type, mapping] : plan_.mappings.events) {
      for (Route& route : mapping.routes) {
        if (route.table != plan_.tables.size()) continue;
        for (Handler& handler : route.handlers) {
          for (auto& [index, source] : handler.set) {
            if (index == kDeletedAtCell) index = values;
          }
        }
      }
    }
    plan_.mappings.cells.push_back(static_cast<uint32_t>(table_.key.size()) + values +
                                   (table_.deleted_at.empty() ? 0 : 1));
    plan_.tables.push_back(std::move(table_));
  }

  YamlFile& file_;
  const GroupScope& scope_;
  GroupPlan& plan_;
  Table table_;
};

}  // namespace

void ReadProjection(YamlFile& file, const YAML::Node& node, const GroupScope& scope,
                    GroupPlan* plan) {
  ProjectionReader(file, scope, plan).Read(node);
}

}  // namespace lockstep::projections
