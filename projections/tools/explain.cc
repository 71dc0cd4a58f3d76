#include "projections/tools/explain.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "platform/config/config.h"
#include "platform/duration.h"
#include "platform/shown_address.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/sql_error.h"
#include "state/events/inbox.h"
#include "state/groups/epochs.h"

namespace lockstep::projections {
namespace {

using Json = nlohmann::ordered_json;
using postgres::QuoteIdentifier;

std::string OperationName(Operation operation, const Table& table) {
  const auto named = std::ranges::find_if(
      kOperations, [&](const auto& known) { return known.second == operation; });
  if (operation != Operation::kDelete) return named->first;
  return (table.deleted_at.empty() ? "hard " : "soft ") + named->first;
}

const std::vector<std::string> kEventKeys = {
    "event_id", "event_type",   "tenant_id", "aggregate_type", "aggregate_id", "version",
    "topic",    "content_type", "payload",   "schema_version", "occurred_at",  "attributes"};

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

absl::StatusOr<Event> ReadEvent(const Json& object) {
  if (!object.is_object()) return InvalidArgument("an event is a JSON object");
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(kEventKeys, key) != kEventKeys.end()) continue;
    const std::string nearest = NearestWord(key, kEventKeys);
    return InvalidArgument("unknown key '{}'{}; other attributes belong under 'attributes'", key,
                           nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest));
  }
  Event event;
  const auto text = [&](const char* key, std::string fallback) {
    return object.contains(key) ? TextOf(object[key]) : std::move(fallback);
  };
  event.event_id = EventId(text("event_id", "00000000-0000-0000-0000-000000000000"));
  event.event_type = text("event_type", "");
  if (event.event_type.empty()) return InvalidArgument("'event_type' is missing");
  event.aggregate.type = text("aggregate_type", "");
  event.aggregate.id = text("aggregate_id", "");
  if (object.contains("tenant_id")) event.aggregate.tenant_id = TextOf(object["tenant_id"]);
  event.topic = text("topic", "");
  try {
    event.version = std::stoll(text("version", "1"));
    event.schema_version = std::stoi(text("schema_version", "1"));
  } catch (const std::exception&) {
    return InvalidArgument("version and schema_version are numbers");
  }
  ASSIGN_OR_RETURN(event.occurred_at, ParseTimestamp(text("occurred_at", "1970-01-01T00:00:00Z")));
  if (object.contains("attributes") && object["attributes"].is_object()) {
    for (const auto& [key, value] : object["attributes"].items()) {
      event.attributes[key] = TextOf(value);
    }
  }
  if (std::string wrong = envelope::ReadKind(event); !wrong.empty()) {
    return InvalidArgument("{}", wrong);
  }
  const Json payload = object.contains("payload") ? object["payload"] : Json::object();
  if (payload.is_string()) {
    const std::string& encoded = payload.get_ref<const std::string&>();
    if (!absl::Base64Unescape(absl::string_view(encoded.data(), encoded.size()), &event.payload)) {
      return InvalidArgument("a payload that is text is base64; a JSON payload stands as it is");
    }
    event.content_type = text("content_type", "application/protobuf");
  } else {
    event.payload = payload.dump();
    event.content_type = text("content_type", "application/json");
  }
  return event;
}

const google::protobuf::Descriptor* TypeOf(const EventMapping& mapping, int schema_version) {
  if (mapping.envelope.message != nullptr) return mapping.envelope.message;
  for (const Route& route : mapping.routes) {
    for (const Handler& handler : route.handlers) {
      if (handler.message != nullptr && handler.Takes(schema_version)) return handler.message;
    }
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::vector<ExplainedRow>> Explain(const GroupProjector& projector,
                                                  const Event& event) {
  ASSIGN_OR_RETURN(const auto change, projector.Map(event));
  const auto& mapped = static_cast<const MappedChange&>(*change);
  std::vector<ExplainedRow> rows;
  for (const RowChange& row : mapped.rows) {
    const Table& table = projector.plan().tables[row.table];
    ExplainedRow explained;
    explained.table_index = row.table;
    explained.projection = table.projection;
    explained.table = table.name.ToString();
    explained.operation = OperationName(row.operation, table);
    size_t at = row.first_cell;
    for (const Column& column : table.key) {
      explained.key.emplace_back(column.name, mapped.Text(mapped.cells[at++]));
    }
    const auto add = [&](const std::string& column, const Cell& cell) {
      if (cell.state == CellState::kAbsent) {
        explained.absent.push_back(column);
      } else if (cell.state == CellState::kNull) {
        explained.columns.emplace_back(column, std::nullopt);
      } else {
        explained.columns.emplace_back(column, std::string(mapped.Text(cell)));
      }
    };
    for (const Column& column : table.values) add(column.name, mapped.cells[at++]);
    if (!table.deleted_at.empty() && row.operation == Operation::kDelete) {
      const Cell& cell = mapped.cells[at];
      if (cell.state == CellState::kAbsent) {
        explained.columns.emplace_back(table.deleted_at, "now");
      } else {
        add(table.deleted_at, cell);
      }
    }
    // What the source does not have leaves no version behind, and stays whose it was.
    const bool gone = mapped.absent && row.operation == Operation::kDelete;
    const bool stays = !gone || !table.deleted_at.empty();
    if (!table.version.empty() && stays) {
      explained.columns.emplace_back(table.version, gone ? "0" : fmt::format("{}", mapped.version));
    }
    if (!table.aggregate.empty() && !gone) {
      explained.columns.emplace_back(table.aggregate, mapped.aggregate);
    }
    if (!table.updated_at.empty() && stays) explained.columns.emplace_back(table.updated_at, "now");
    rows.push_back(std::move(explained));
  }
  for (const uint32_t call : mapped.calls) {
    const Call& target = projector.plan().mappings.calls[call];
    ExplainedRow explained;
    explained.projection = target.handler;
    explained.table = target.is_http() ? ShownAddresses(target.url) : target.function.ToString();
    explained.operation = "call";
    rows.push_back(std::move(explained));
  }
  return rows;
}

absl::StatusOr<GuardPreview> GuardPreview::Open(const GroupPlan& plan,
                                                postgres::Connection& connection) {
  GuardPreview preview(plan, connection);
  for (const Table& table : plan.tables) {
    ASSIGN_OR_RETURN(LiveTable live, ReadLiveTable(connection, table.name));
    std::vector<std::string> needed;
    for (const Column& column : table.key) needed.push_back(column.name);
    if (!table.counting) needed.push_back(table.version);
    for (const std::string& column : needed) {
      if (live.columns.contains(column)) continue;
      return FailedPrecondition("table {} has no column {}; lockstepctl projection check says more",
                                table.name.ToString(), column);
    }
    preview.live_.push_back(std::move(live));
  }
  if (plan.state_schema.empty()) return preview;
  const state::Schema schema(plan.state_schema);
  const absl::Status there = schema.Check(connection);
  if (absl::IsFailedPrecondition(there)) {
    return FailedPrecondition(
        "schema {} holds no state of a service; name the one that the runner "
        "is configured with (--state-schema)",
        plan.state_schema);
  }
  RETURN_IF_ERROR(there);
  const auto group = state::Epochs(schema, ConsumerGroup(plan.group)).Load(connection);
  if (!group.ok() && !absl::IsNotFound(group.status())) return group.status();
  if (group.ok()) preview.generation_ = group->generation;
  return preview;
}

absl::StatusOr<bool> GuardPreview::Seen(const Event& event) {
  if (!generation_.has_value()) return false;
  const auto seen = state::Inbox(state::Schema(plan_->state_schema))
                        .Seen(*connection_, static_cast<int>(*generation_),
                              {{.event_id = event.event_id.value(),
                                .aggregate_key = AggregateKey(event.aggregate),
                                .version = event.version,
                                .snapshot = event.is_snapshot()}});
  if (seen.ok()) return seen->front();
  // An id that is no uuid can't be in the inbox.
  if (postgres::Classify(seen.status()) == postgres::ErrorClass::kData) return false;
  return seen.status();
}

// Answers one row: the key as one text, the stored version (NULL = none), whether it is deleted,
// its aggregate.
std::string GuardPreview::Query(const Table& table, const LiveTable& live, bool of_versions) const {
  std::vector<std::string> inputs;
  std::vector<std::string> joins;
  std::vector<std::string> key;
  for (size_t i = 0; i < table.key.size(); ++i) {
    inputs.push_back(
        fmt::format("${}::text::{} AS k{}", i + 1, live.columns.at(table.key[i].name).type, i));
    joins.push_back(fmt::format("t.{} = k.k{}", QuoteIdentifier(table.key[i].name), i));
    key.push_back(fmt::format("k.k{}", i));
  }
  const std::string key_text =
      key.size() == 1 ? key[0] + "::text" : fmt::format("ROW({})::text", fmt::join(key, ", "));
  const std::string from = fmt::format("FROM (SELECT {}) AS k", fmt::join(inputs, ", "));
  if (of_versions) {
    const size_t next = table.key.size() + 1;
    return fmt::format(
        "SELECT {0}, r.version, r.deleted_at IS NOT NULL, r.aggregate\n{1}\n"
        "LEFT JOIN {2}.row_versions AS r ON r.consumer_group = ${3}"
        " AND r.generation = ${4} AND r.projection = ${5} AND r.row_key = {0}",
        key_text, from, QuoteIdentifier(plan_->state_schema), next, next + 1, next + 2);
  }
  return fmt::format("SELECT {}, t.{}, {}, {}\n{}\nLEFT JOIN {} AS t ON {}", key_text,
                     QuoteIdentifier(table.version),
                     table.deleted_at.empty()
                         ? "false"
                         : fmt::format("t.{} IS NOT NULL", QuoteIdentifier(table.deleted_at)),
                     table.aggregate.empty() ? "NULL" : "t." + QuoteIdentifier(table.aggregate),
                     from, table.name.Quoted(), fmt::join(joins, " AND "));
}

absl::Status GuardPreview::Judge(const Event& event, ExplainedRow* row) {
  if (row->operation == "call") return absl::OkStatus();
  const Table& table = plan_->tables[row->table_index];
  row->guard.emplace();
  if (table.counting) {
    row->guard->verdict = "count";
    return absl::OkStatus();
  }
  postgres::Params params;
  for (const auto& [column, value] : row->key) params.Add(value);
  // A row that the source does not have goes whatever is remembered of it.
  const bool of_versions = table.hard_deletes() && generation_.has_value() && !event.absent;
  if (of_versions) params.Add(plan_->group).Add(*generation_).Add(table.projection);
  const auto found =
      connection_->Execute(Query(table, live_[row->table_index], of_versions), params);
  if (!found.ok()) {
    if (postgres::Classify(found.status()) != postgres::ErrorClass::kData) return found.status();
    row->guard->verdict = "dead letter";  // the key is no value of its column
    row->guard->why = MessageOf(found.status());
    return absl::OkStatus();
  }
  const auto at = std::make_pair(row->table_index, std::string(found->Text(0, 0)));
  std::optional<Stored> stored;
  if (!found->IsNull(0, 1)) {
    stored = Stored{found->Int(0, 1), found->Bool(0, 2), found->Optional(0, 3)};
  }
  if (const auto written = would_be_.find(at); written != would_be_.end()) stored = written->second;
  if (stored.has_value()) {
    row->guard->stored_version = stored->version;
    row->guard->stored_deleted = stored->deleted;
  }
  std::optional<std::string> own;
  if (!table.aggregate.empty()) own = AggregateKey(event.aggregate);
  if (stored.has_value() && stored->aggregate.has_value() && own.has_value() &&
      stored->aggregate != own) {
    row->guard->verdict = "foreign";
    row->guard->why = *stored->aggregate;
  } else if (event.absent) {
    const bool there = stored.has_value() && !stored->deleted && stored->version <= event.version;
    row->guard->verdict = there ? "apply" : "superseded";
    if (there) {
      would_be_[at] = table.deleted_at.empty() ? std::nullopt : std::optional(Stored{0, true, own});
    }
  } else if (!stored.has_value() || stored->version < event.version ||
             (stored->version == event.version && event.overwrite)) {
    row->guard->verdict = "apply";
    would_be_[at] = Stored{event.version, row->operation.ends_with("delete"), own};
  } else {
    const bool fork = stored->version == event.version && !event.is_snapshot();
    row->guard->verdict = fork ? "conflict" : "superseded";
  }
  return absl::OkStatus();
}

std::optional<std::string> PayloadAsJson(const GroupPlan& plan, const Event& event) {
  if (event.content_type == "application/json") return event.payload;
  const Mappings& mappings = plan.mappings;
  const auto found = mappings.events.find(event.event_type);
  if (found == mappings.events.end()) return std::nullopt;
  const auto* const type = TypeOf(found->second, event.schema_version);
  if (type == nullptr) return std::nullopt;
  const auto message = mappings.descriptors->Take(type, event.payload.size());
  if (!message->ParseFromString(event.payload)) return std::nullopt;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(*message, &json, options).ok()) {
    return std::nullopt;
  }
  return json;
}

absl::StatusOr<std::vector<Event>> ReadEventFile(const std::string& file) {
  const auto text = ReadWholeFile(file);
  if (!text.ok()) return NotFound("event file {}", MessageOf(text.status()));
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("{} is not JSON", file);
  std::vector<Event> events;
  for (const Json& object : json.is_array() ? json : Json::array({json})) {
    auto event = ReadEvent(object);
    if (!event.ok()) {
      return InvalidArgument("{}: event {}: {}", file, events.size() + 1,
                             MessageOf(event.status()));
    }
    events.push_back(*std::move(event));
  }
  return events;
}

}  // namespace lockstep::projections
