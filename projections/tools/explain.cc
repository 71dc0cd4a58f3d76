#include "projections/tools/explain.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "platform/config/config.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::projections {
namespace {

using Json = nlohmann::ordered_json;

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
    if (!table.version.empty()) {
      explained.columns.emplace_back(table.version, fmt::format("{}", mapped.version));
    }
    if (!table.aggregate.empty()) explained.columns.emplace_back(table.aggregate, mapped.aggregate);
    if (!table.updated_at.empty()) explained.columns.emplace_back(table.updated_at, "now");
    rows.push_back(std::move(explained));
  }
  return rows;
}

std::optional<std::string> PayloadAsJson(const Projector& projector, const Event& event) {
  if (event.content_type == "application/json") return event.payload;
  const auto* const group = dynamic_cast<const GroupProjector*>(&projector);
  if (group == nullptr) return std::nullopt;
  const Mappings& mappings = group->plan().mappings;
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
