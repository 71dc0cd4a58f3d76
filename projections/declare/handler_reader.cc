#include "projections/declare/handler_reader.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>

#include "platform/config/config.h"
#include "platform/text.h"
#include "projections/declare/value_reader.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
namespace {

constexpr char kNeedsColumns[] = "{0} needs columns; write {0}: {{column: field}}";
const std::vector<std::string> kHandlerKeys = {"replace",        "merge", "increment", "delete",
                                               "ignore",         "key",   "when",      "message",
                                               "schema_version", "on_gap"};
const std::vector<std::string> kCallKeys = {"call",    "ignore",         "when",
                                            "message", "schema_version", "on_gap"};
// What differs from event to event of one aggregate.
const std::vector<std::string> kOfTheEvent = {"event_id",    "version",     "sequence",
                                              "occurred_at", "traceparent", "tracestate"};

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

// Which message the fields of an event are those of: what `message:` of its mapping (`node`) says,
// else `messages:` of the group, else the message that is named like the event. With an envelope it
// is the member of its oneof. Nothing when that is wrong (reported at `type`, the event's).
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

// Reads one mapping of one event type.
class HandlerReader {
 public:
  HandlerReader(ProjectionScope& scope, const YAML::Node& type, const YAML::Node& node)
      : scope_(scope), file_(scope.file), table_(scope.table), type_(type), node_(node) {}

  // Nothing when it is wrong (reported).
  std::optional<Handler> Read(EventMapping* mapping) {
    if (!(calls() ? ReadCall() : node_.IsScalar() ? ReadWord() : ReadOperation())) {
      return std::nullopt;
    }
    NoteOperation();
    const bool ignored = handler_.operation == Operation::kIgnore;
    if (ignored && !(node_.IsMap() && node_["when"].IsDefined())) return std::move(handler_);
    if (calls() && !NeedsMessage()) return std::move(handler_);
    const auto fields = FindScope(file_, scope_.group, type_, node_, mapping);
    if (!fields.has_value()) return std::nullopt;
    handler_.message = fields->message;
    if (node_.IsMap()) handler_.when = ReadConditions(file_, node_["when"], *fields);
    if (!ignored && !calls()) {
      ReadKey(*fields);
      ReadSet(*fields);
    }
    return std::move(handler_);
  }

 private:
  bool calls() const { return scope_.add_call != nullptr; }

  // A handler takes the payload as it is. Its message is looked for where a condition needs it, or
  // it can be told: then the handler gets protobuf as JSON, too.
  bool NeedsMessage() const {
    const GroupScope& group = scope_.group;
    if (node_.IsMap() && (node_["when"].IsDefined() || node_["message"].IsDefined())) return true;
    if (group.messages.contains(type_.Scalar())) return true;
    return std::ranges::count_if(group.descriptors.names(), [&](const std::string& name) {
             return name == type_.Scalar() || name.ends_with("." + type_.Scalar());
           }) == 1;
  }

  // `VideoCreated: {call: feed.on_video}`; `VideoDeleted: ignore`; a name in a list.
  bool ReadCall() {
    const bool plain = node_.IsScalar() || node_.IsNull();
    handler_.operation = Operation::kIgnore;
    if (node_.IsScalar() && node_.Scalar() == "ignore") return true;
    if (node_.IsScalar() && node_.Scalar() != type_.Scalar()) {
      file_.Error(node_, "write {}: {{call: {}}}", type_.Scalar(), node_.Scalar());
      return false;
    }
    if (!plain && !file_.CheckMap(node_, fmt::format("event {}", type_.Scalar()), kCallKeys)) {
      return false;
    }
    if (!plain) ReadSchemaVersions();
    if (!plain && node_["ignore"].IsDefined()) return true;
    const auto own = plain ? std::nullopt : file_.Text(node_, "call");
    const std::string target = own.value_or(scope_.call);
    if (target.empty()) {
      file_.Error(type_,
                  "event {}: what is to be called is missing; write {{call: schema.function}} or "
                  "{{call: https://…}}",
                  type_.Scalar());
      return false;
    }
    const auto call = scope_.add_call(own ? node_["call"] : type_, target);
    if (!call.has_value()) return false;
    handler_.operation = Operation::kCall;
    handler_.call = *call;
    // Code minds the order of what happened.
    handler_.parks_on_gap =
        (plain ? std::nullopt : ReadOnGap(file_, node_)).value_or(scope_.on_gap.value_or(true));
    return true;
  }

  // `VideoDeleted: delete`.
  bool ReadWord() {
    const std::string& name = node_.Scalar();
    const auto found = std::ranges::find(kOperations, name, [](const auto& o) { return o.first; });
    if (found == kOperations.end() || found->second == Operation::kCall) {
      std::vector<std::string> names;
      for (const auto& [known, operation] : kOperations) {
        if (operation != Operation::kCall) names.push_back(known);
      }
      const std::string nearest = NearestWord(name, names);
      file_.Error(node_, "'{}' is no operation{}", name,
                  nearest.empty() ? fmt::format("; one of {}", fmt::join(names, ", "))
                                  : fmt::format("; did you mean '{}'?", nearest));
      return false;
    }
    handler_.operation = found->second;
    if (found->second == Operation::kDelete) handler_.parks_on_gap = scope_.on_gap.value_or(false);
    if (found->second == Operation::kDelete || found->second == Operation::kIgnore) return true;
    file_.Error(node_, kNeedsColumns, name);
    return false;
  }

  // A map with one operation, whose columns go to `set_`.
  bool ReadOperation() {
    if (node_.IsMap() && node_["call"].IsDefined()) {
      file_.Error(node_["call"],
                  "call belongs under handlers:, beside projections:, for it writes no table");
      return false;
    }
    if (!file_.CheckMap(node_, fmt::format("event {}", type_.Scalar()), kHandlerKeys)) return false;
    std::string operation;
    for (const auto& [name, value] : kOperations) {
      if (!node_[name].IsDefined()) continue;
      if (!operation.empty()) {
        file_.Error(node_[name],
                    "{} and {} can't both be given; one operation per event (or a list of mappings "
                    "with when)",
                    operation, name);
        return false;
      }
      operation = name;
      handler_.operation = value;
    }
    if (operation.empty()) {
      file_.Error(node_,
                  "event {}: an operation is missing; one of replace, merge, increment, delete, "
                  "ignore",
                  type_.Scalar());
      return false;
    }
    set_.reset(node_[operation]);
    handler_.parks_on_gap =
        ReadOnGap(file_, node_)
            .value_or(scope_.on_gap.value_or(handler_.operation == Operation::kMerge));
    ReadSchemaVersions();
    return true;
  }

  void ReadSchemaVersions() {
    for (const YAML::Node& item : file_.Scalars(node_["schema_version"], "schema_version")) {
      int version = 0;
      const std::string text = item.IsScalar() ? item.Scalar() : "";
      if (!ParseWhole(text, &version)) {
        file_.Error(item, "schema_version: '{}' is not a number", text);
      }
      handler_.schema_versions.push_back(version);
    }
  }

  void NoteOperation() {
    const Operation operation = handler_.operation;
    if (operation == Operation::kIgnore || operation == Operation::kCall) return;
    const bool counts = operation == Operation::kIncrement;
    if (counts ? scope_.versioned : table_.counting) {
      file_.Error(node_,
                  "increment can't stand beside replace, merge or delete in one table: counts come "
                  "from many aggregates, versions from one; give the counts a table of their own");
    }
    (counts ? table_.counting : scope_.versioned) = true;
    if (operation == Operation::kMerge) table_.merges = true;
    if (operation == Operation::kDelete) table_.deletes = true;
  }

  void ReadKey(const FieldScope& fields) {
    YAML::Node own(YAML::NodeType::Undefined);
    if (node_.IsMap()) own.reset(YamlFile::Child(node_, "key"));
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
      auto read = ReadValueSource(file_, value, fields, handler_.operation);
      if (!read.has_value()) {
        file_.Error(type_,
                    "(the key column {0} of this event is meant; say key: {{{0}: …}} here where it "
                    "comes from)",
                    column.name);
        continue;
      }
      CheckKeySource(value, column);
      read->use.counted = false;
      column.uses.push_back(read->use);
      handler_.key.push_back(std::move(read->source));
    }
  }

  // Where a key column comes from: the event's own `key:`, else the projection's.
  YAML::Node KeySource(const YAML::Node& own, size_t column) const {
    const std::string& name = table_.key[column].name;
    if (own.IsDefined() && own[name].IsDefined()) return own[name];
    if (scope_.key.IsMap()) return scope_.key[name];
    return scope_.key.IsSequence() ? scope_.key[column] : scope_.key;
  }

  // A row carries its aggregate's versions, so its key must be the same for all events that meet on
  // it. Whether two values of a field are, only the data knows; of these it is known beforehand. (A
  // table of snapshots alone may be a log, with a row per event.)
  void CheckKeySource(const YAML::Node& source, const Column& column) {
    if (handler_.operation == Operation::kIncrement || !source.IsMap()) return;
    if (source["now"].IsDefined()) {
      file_.Error(type_,
                  "key column {} is now, which is another row each time an event is delivered; use "
                  "{{attribute: occurred_at}} or a field",
                  column.name);
      return;
    }
    const YAML::Node attribute = source["attribute"];
    if (handler_.operation == Operation::kReplace || !attribute.IsDefined()) return;
    if (std::ranges::find(kOfTheEvent, attribute.Scalar()) == kOfTheEvent.end()) return;
    file_.Error(type_,
                "key column {} is the event's {}, which no two events of an aggregate share: a "
                "merge or delete would never meet its row; use a field that names the aggregate, "
                "or {{attribute: aggregate_id}}",
                column.name, attribute.Scalar());
  }

  // A column, a map of columns to where they come from, or a list of both.
  void ReadSet(const FieldScope& fields) {
    if (handler_.operation == Operation::kIncrement &&
        (set_.IsNull() || (!set_.IsScalar() && set_.size() == 0))) {
      file_.Error(type_, kNeedsColumns, "increment");
      return;
    }
    if (!set_.IsDefined() || set_.IsNull() || (set_.IsScalar() && set_.Scalar() == "true")) {
      if (handler_.operation != Operation::kDelete && !set_.IsNull()) {
        file_.Error(set_, "columns are wanted here");
      }
      return;
    }
    const auto items = set_.IsSequence() ? std::vector<YAML::Node>(set_.begin(), set_.end())
                                         : std::vector<YAML::Node>{set_};
    for (const YAML::Node& item : items) {
      if (item.IsScalar()) {
        ReadColumn(item, item, fields);
      } else if (!item.IsMap()) {
        file_.Error(item, "a column's name is wanted here, or column: field");
      } else if (file_.CheckMap(item, "columns", {})) {
        for (const auto& column : item) ReadColumn(column.first, column.second, fields);
      }
    }
  }

  bool IsBookkeeping(const std::string& column) const {
    return std::ranges::find(table_.key, column, &Column::name) != table_.key.end() ||
           column == table_.version || column == table_.updated_at || column == table_.aggregate ||
           (column == table_.deleted_at && handler_.operation != Operation::kDelete);
  }

  void ReadColumn(const YAML::Node& column, const YAML::Node& value, const FieldScope& fields) {
    const std::string& name = column.Scalar();
    if (IsBookkeeping(name)) {
      file_.Error(column, "column {} is written by itself; leave it out here", name);
      return;
    }
    auto read = ReadValueSource(file_, value, fields, handler_.operation);
    if (!read.has_value()) return;
    if (name == table_.deleted_at) {
      handler_.deleted_at = std::move(read->source);
      return;
    }
    if (handler_.operation == Operation::kDelete && table_.deleted_at.empty()) {
      file_.Error(column,
                  "a hard delete writes no columns; leave them out, or name a deleted_at column to "
                  "delete softly");
      return;
    }
    uint32_t index = 0;
    while (index < table_.values.size() && table_.values[index].name != name) ++index;
    if (index == table_.values.size()) table_.values.push_back({name, {}});
    for (const auto& [other, source] : handler_.set) {
      if (other == index) file_.Error(column, "column {} stands here twice; keep one", name);
    }
    table_.values[index].uses.push_back(read->use);
    handler_.set.emplace_back(index, std::move(read->source));
  }

  ProjectionScope& scope_;
  YamlFile& file_;
  Table& table_;
  const YAML::Node& type_;
  const YAML::Node& node_;
  YAML::Node set_{YAML::NodeType::Undefined};
  Handler handler_;
};

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

void ReadHandler(ProjectionScope& scope, const YAML::Node& type, const YAML::Node& node,
                 EventMapping* mapping, Route* route) {
  auto handler = HandlerReader(scope, type, node).Read(mapping);
  if (handler.has_value()) route->handlers.push_back(*std::move(handler));
}

}  // namespace lockstep::projections
