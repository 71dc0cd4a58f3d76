#include "projections/declare/handler_reader.h"

#include <algorithm>
#include <charconv>

#include "platform/config/config.h"

namespace lockstep::projections {
namespace {

const std::vector<std::string> kHandlerKeys = {"replace",        "merge", "increment", "delete",
                                               "ignore",         "key",   "when",      "message",
                                               "schema_version", "on_gap"};
const std::vector<std::pair<std::string, Operation>> kOperations = {
    {"replace", Operation::kReplace},
    {"merge", Operation::kMerge},
    {"increment", Operation::kIncrement},
    {"delete", Operation::kDelete},
    {"ignore", Operation::kIgnore}};

// What differs from event to event of one aggregate.
const std::vector<std::string> kOfTheEvent = {"event_id",    "version",     "sequence",
                                              "occurred_at", "traceparent", "tracestate"};

std::vector<YAML::Node> Items(const YAML::Node& list) { return {list.begin(), list.end()}; }

YAML::Node Undefined() { return YAML::Node(YAML::NodeType::Undefined); }

}  // namespace

std::optional<bool> ReadOnGap(YamlFile& file, const YAML::Node& node) {
  const auto text = file.Text(node, "on_gap");
  if (!text.has_value()) return std::nullopt;
  if (*text != "park" && *text != "apply") {
    file.Error(node["on_gap"], fmt::format("on_gap: '{}' is neither park nor apply", *text));
  }
  return *text == "park";
}

HandlerReader::HandlerReader(YamlFile& file, const GroupScope& scope, const YAML::Node& key,
                             std::optional<bool> on_gap, GroupPlan* plan, Table* table)
    : file_(file), scope_(scope), key_(key), on_gap_(on_gap), plan_(*plan), table_(*table) {}

void HandlerReader::Read(const std::string& type, const YAML::Node& at, const YAML::Node& node,
                         EventMapping& mapping, Route* route) {
  Handler handler;
  YAML::Node set;
  set.reset(Undefined());
  if (!ReadOperation(type, node, &handler, &set)) return;
  NoteOperation(node, handler.operation);
  const bool needs_payload =
      handler.operation != Operation::kIgnore || (node.IsMap() && node["when"].IsDefined());
  if (needs_payload) {
    FieldScope fields;
    fields.fields = &plan_.fields;
    if (!FindScope(file_, scope_, type, at, node, *plan_.mappings.descriptors, &mapping, &fields)) {
      return;
    }
    handler.message = fields.message;
    if (node.IsMap()) handler.when = ReadConditions(file_, node["when"], fields);
    if (handler.operation != Operation::kIgnore) {
      ReadKey(at, node, fields, &handler);
      ReadSet(set, fields, &handler);
    }
  }
  route->handlers.push_back(std::move(handler));
}

// `VideoDeleted: delete`, or a map with one operation, whose columns go to `set`.
bool HandlerReader::ReadOperation(const std::string& type, const YAML::Node& node, Handler* handler,
                                  YAML::Node* set) {
  if (node.IsScalar()) {
    if (!OperationNamed(node, node.Scalar(), &handler->operation)) return false;
    if (handler->operation == Operation::kDelete || handler->operation == Operation::kIgnore) {
      return true;
    }
    file_.Error(node, fmt::format("{} needs columns; write {}: {{column: field}}", node.Scalar(),
                                  node.Scalar()));
    return false;
  }
  if (!file_.CheckMap(node, fmt::format("event {}", type), kHandlerKeys)) return false;
  std::string operation;
  for (const auto& [name, value] : kOperations) {
    if (!node[name].IsDefined()) continue;
    if (!operation.empty()) {
      file_.Error(node[name], fmt::format("{} and {} can't both be given; one operation per "
                                          "event (or a list of mappings with when)",
                                          operation, name));
      return false;
    }
    operation = name;
    handler->operation = value;
  }
  if (operation.empty()) {
    file_.Error(node, fmt::format("event {}: an operation is missing; one of replace, merge, "
                                  "increment, delete, ignore",
                                  type));
    return false;
  }
  set->reset(node[operation]);
  handler->parks_on_gap =
      ReadOnGap(file_, node).value_or(on_gap_.value_or(handler->operation == Operation::kMerge));
  ReadSchemaVersions(node, handler);
  return true;
}

bool HandlerReader::OperationNamed(const YAML::Node& at, const std::string& name,
                                   Operation* operation) {
  std::vector<std::string> names;
  for (const auto& [known, value] : kOperations) {
    if (known == name) {
      *operation = value;
      return true;
    }
    names.push_back(known);
  }
  const std::string nearest = NearestWord(name, names);
  file_.Error(at, fmt::format("'{}' is no operation{}", name,
                              nearest.empty() ? fmt::format("; one of {}", fmt::join(names, ", "))
                                              : fmt::format("; did you mean '{}'?", nearest)));
  return false;
}

void HandlerReader::ReadSchemaVersions(const YAML::Node& node, Handler* handler) {
  for (const YAML::Node& item : file_.Scalars(node["schema_version"], "schema_version")) {
    int version = 0;
    const std::string text = item.IsScalar() ? item.Scalar() : "";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
    if (error != std::errc() || end != text.data() + text.size()) {
      file_.Error(item, fmt::format("schema_version: '{}' is not a number", text));
    }
    handler->schema_versions.push_back(version);
  }
}

void HandlerReader::NoteOperation(const YAML::Node& at, Operation operation) {
  if (operation == Operation::kIgnore) return;
  const bool counts = operation == Operation::kIncrement;
  if (counts ? versioned_ : table_.counting) {
    file_.Error(at,
                "increment can't stand beside replace, merge or delete in one table: counts "
                "come from many aggregates, versions from one; give the counts a table of "
                "their own");
  }
  (counts ? table_.counting : versioned_) = true;
  if (operation == Operation::kMerge) table_.merges = true;
  if (operation == Operation::kDelete) table_.deletes = true;
}

void HandlerReader::ReadKey(const YAML::Node& at, const YAML::Node& node, const FieldScope& fields,
                            Handler* handler) {
  YAML::Node own;
  own.reset(Undefined());
  if (node.IsMap()) own.reset(YamlFile::Child(node, "key"));
  if (own.IsDefined() && !own.IsMap()) {
    file_.Error(own, "key: a map of key columns to fields is wanted here");
    return;
  }
  if (own.IsDefined()) {
    std::vector<std::string> names;
    for (const Column& column : table_.key) names.push_back(column.name);
    file_.CheckMap(own, "key", names);
  }
  for (size_t i = 0; i < table_.key.size(); ++i) {
    Column& column = table_.key[i];
    const YAML::Node value = KeySource(own, i);
    auto read = ReadValueSource(file_, value, fields, handler->operation);
    if (!read.has_value()) {
      file_.Error(at, fmt::format("(the key column {} of this event is meant; say key: {{{}: …}} "
                                  "here where it comes from)",
                                  column.name, column.name));
      continue;
    }
    CheckKeySource(at, value, column, handler->operation);
    read->use.counted = false;
    column.uses.push_back(read->use);
    handler->key.push_back(std::move(read->source));
  }
}

// Where a key column comes from: the event's own `key:`, else the projection's.
YAML::Node HandlerReader::KeySource(const YAML::Node& own, size_t column) const {
  const std::string& name = table_.key[column].name;
  if (own.IsDefined() && own[name].IsDefined()) return own[name];
  if (key_.IsMap()) return key_[name];
  return key_.IsSequence() ? key_[column] : key_;
}

// A row carries its aggregate's versions, so its key must be the same for all events that meet on
// it. Whether two values of a field are, only the data knows; of these it is known beforehand. (A
// table of snapshots alone may be a log, with a row per event.)
void HandlerReader::CheckKeySource(const YAML::Node& at, const YAML::Node& source,
                                   const Column& column, Operation operation) {
  if (operation == Operation::kIncrement || !source.IsMap()) return;
  if (source["now"].IsDefined()) {
    file_.Error(at, fmt::format("key column {} is now, which is another row each time an event is "
                                "delivered; use {{attribute: occurred_at}} or a field",
                                column.name));
    return;
  }
  const YAML::Node attribute = source["attribute"];
  if (operation == Operation::kReplace || !attribute.IsDefined()) return;
  if (std::find(kOfTheEvent.begin(), kOfTheEvent.end(), attribute.Scalar()) == kOfTheEvent.end()) {
    return;
  }
  file_.Error(at,
              fmt::format("key column {} is the event's {}, which no two events of an aggregate "
                          "share: a merge or delete would never meet its row; use a field that "
                          "names the aggregate, or {{attribute: aggregate_id}}",
                          column.name, attribute.Scalar()));
}

void HandlerReader::ReadSet(const YAML::Node& set, const FieldScope& fields, Handler* handler) {
  if (!set.IsDefined() || set.IsNull() || (set.IsScalar() && set.Scalar() == "true")) {
    if (handler->operation != Operation::kDelete && !set.IsNull()) {
      file_.Error(set, "columns are wanted here");
    }
    return;
  }
  if (set.IsSequence() || set.IsScalar()) {
    for (const auto& item : set.IsScalar() ? std::vector<YAML::Node>{set} : Items(set)) {
      if (item.IsMap()) {
        ReadColumns(item, fields, handler);
      } else if (item.IsScalar()) {
        ReadColumn(item, item.Scalar(), item, fields, handler);
      } else {
        file_.Error(item, "a column's name is wanted here, or column: field");
      }
    }
    return;
  }
  ReadColumns(set, fields, handler);
}

void HandlerReader::ReadColumns(const YAML::Node& map, const FieldScope& fields, Handler* handler) {
  if (!file_.CheckMap(map, "columns", {})) return;
  for (const auto& column : map) {
    ReadColumn(column.first, column.first.Scalar(), column.second, fields, handler);
  }
}

bool HandlerReader::IsBookkeeping(const std::string& column, Operation operation) const {
  const auto is_it = [&](const Column& key) { return key.name == column; };
  return std::any_of(table_.key.begin(), table_.key.end(), is_it) || column == table_.version ||
         column == table_.updated_at || column == table_.aggregate ||
         (column == table_.deleted_at && operation != Operation::kDelete);
}

void HandlerReader::ReadColumn(const YAML::Node& at, const std::string& name,
                               const YAML::Node& value, const FieldScope& fields,
                               Handler* handler) {
  if (IsBookkeeping(name, handler->operation)) {
    file_.Error(at, fmt::format("column {} is written by itself; leave it out here", name));
    return;
  }
  auto read = ReadValueSource(file_, value, fields, handler->operation);
  if (!read.has_value()) return;
  if (name == table_.deleted_at) {
    handler->set.emplace_back(kDeletedAtCell, std::move(read->source));
    return;
  }
  if (handler->operation == Operation::kDelete && table_.deleted_at.empty()) {
    file_.Error(at,
                "a hard delete writes no columns; leave them out, or name a deleted_at "
                "column to delete softly");
    return;
  }
  uint32_t index = 0;
  while (index < table_.values.size() && table_.values[index].name != name) ++index;
  if (index == table_.values.size()) table_.values.push_back({name, {}});
  for (const auto& [other, source] : handler->set) {
    if (other == index) {
      file_.Error(at, fmt::format("column {} stands here twice; keep one", name));
    }
  }
  table_.values[index].uses.push_back(read->use);
  handler->set.emplace_back(index, std::move(read->source));
}

}  // namespace lockstep::projections
