#include "projections/decode/mapping.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "platform/config/config.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "projections/decode/takes_snapshots.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
namespace {

// A decoded payload: the message of the mapping, or the values that its JSON reader took out.
struct Decoded {
  const Event* event = nullptr;
  const pb::Message* message = nullptr;  // null = JSON
  const std::string* json_text = nullptr;
  const std::vector<JsonValue>* json = nullptr;
};

// The parts of an event that are no attributes of its message; tenant_id may be missing besides.
struct EventPart {
  std::string_view name;
  void (*append)(const Event& event, std::string* out);
};
constexpr EventPart kEventParts[] = {
    {"event_id", [](const Event& event, std::string* out) { *out += event.event_id.value(); }},
    {"aggregate_id", [](const Event& event, std::string* out) { *out += event.aggregate.id; }},
    {"aggregate_type", [](const Event& event, std::string* out) { *out += event.aggregate.type; }},
    {"event_type", [](const Event& event, std::string* out) { *out += event.event_type; }},
    {"version",
     [](const Event& event, std::string* out) { *out += fmt::format_int(event.version).str(); }},
    {"schema_version",
     [](const Event& event, std::string* out) {
       *out += fmt::format_int(event.schema_version).str();
     }},
    {"occurred_at",
     [](const Event& event, std::string* out) { *out += FormatTimestamp(event.occurred_at); }},
    {"content_type", [](const Event& event, std::string* out) { *out += event.content_type; }},
    {"topic", [](const Event& event, std::string* out) { *out += event.topic; }},
};

CellState ReadAttribute(const Event& event, const std::string& name, std::string* out) {
  for (const EventPart& part : kEventParts) {
    if (part.name != name) continue;
    part.append(event, out);
    return CellState::kText;
  }
  if (name == "tenant_id") {
    if (!event.aggregate.tenant_id.has_value()) return CellState::kNull;
    *out += *event.aggregate.tenant_id;
    return CellState::kText;
  }
  const auto found = event.attributes.find(name);
  if (found == event.attributes.end()) return CellState::kAbsent;
  *out += found->second;
  return CellState::kText;
}

absl::StatusOr<CellState> ReadJson(const ValueSource& source, const Decoded& decoded,
                                   std::string* out) {
  const auto& values = *decoded.json;
  const JsonValue& value = values[source.json_slot];
  const bool in_message =
      source.json_parent < 0 || values[source.json_parent].type == JsonValue::Type::kJson;
  if (value.type == JsonValue::Type::kMissing && source.json_default.has_value() && in_message) {
    *out += *source.json_default;
    return CellState::kText;
  }
  const std::string_view text(decoded.json_text->data() + value.offset, value.size);
  return AppendJsonCell(value.type, text, source.path.has_value() ? source.path->leaf() : nullptr,
                        source.encoding, out);
}

absl::StatusOr<CellState> ReadPlain(const ValueSource& source, const Decoded& decoded,
                                    std::string* out) {
  switch (source.kind) {
    case ValueSource::Kind::kField:
      if (decoded.message == nullptr) return ReadJson(source, decoded, out);
      return source.path->Read(*decoded.message, source.encoding, source.omit_default, out);
    case ValueSource::Kind::kAttribute:
      return ReadAttribute(*decoded.event, source.text, out);
    case ValueSource::Kind::kConstant:
      *out += source.text;
      return CellState::kText;
    case ValueSource::Kind::kNull:
      break;
  }
  return CellState::kNull;
}

// Appends the value's text to `out`.
absl::StatusOr<CellState> ReadSource(const ValueSource& source, const Decoded& decoded,
                                     std::string* out) {
  const size_t start = out->size();
  ASSIGN_OR_RETURN(const CellState state, ReadPlain(source, decoded, out));
  if (source.negate && state == CellState::kText) {
    if ((*out)[start] == '-') {
      out->erase(start, 1);
    } else {
      out->insert(start, 1, '-');
    }
  }
  return state;
}

absl::StatusOr<bool> Holds(const Condition& condition, const Decoded& decoded) {
  using Test = Condition::Test;
  std::string text;
  ASSIGN_OR_RETURN(const CellState state, ReadSource(condition.source, decoded, &text));
  if (condition.test == Test::kPresent) return state != CellState::kAbsent;
  if (condition.test == Test::kAbsent) return state == CellState::kAbsent;
  const bool found =
      state != CellState::kAbsent &&
      std::ranges::any_of(condition.values, [&](const std::optional<std::string>& value) {
        return value.has_value() ? state == CellState::kText && *value == text
                                 : state == CellState::kNull;
      });
  return found == (condition.test == Test::kIn);
}

absl::StatusOr<bool> IsJson(const Event& event) {
  const std::string_view type =
      std::string_view(event.content_type).substr(0, event.content_type.find(';'));
  if (type == "application/json") return true;
  if (type == "application/protobuf" || type == "application/x-protobuf") return false;
  return InvalidArgument("content_type '{}' is neither application/protobuf nor application/json",
                         event.content_type);
}

absl::StatusOr<std::string> AsJson(const pb::Message& message) {
  pb::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto printed = pb::util::MessageToJsonString(message, &json, options);
  if (printed.ok()) return json;
  return InvalidArgument("the payload can't be written as JSON: {}", printed.ToString());
}

// Decodes an event's payload at most once per message type.
class Payload {
 public:
  bool is_json() const { return is_json_; }
  // With its envelope. REQUIRES: a message was decoded.
  const pb::Message& whole() const { return *parsed_.front().second; }

  Payload(const Mappings& mappings, const EventMapping& mapping, const Event& event, bool is_json)
      : mappings_(mappings), mapping_(mapping), event_(event), is_json_(is_json) {}

  absl::StatusOr<Decoded> Decode(const pb::Descriptor* message) {
    Decoded decoded;
    decoded.event = &event_;
    if (is_json_) {
      RETURN_IF_ERROR(DecodeJson(message));
      decoded.json_text = &json_text_;
      decoded.json = &json_;
      return decoded;
    }
    if (message == nullptr) {
      return InvalidArgument(
          "the payload is protobuf, and the mapping of {} names no message to decode it with",
          event_.event_type);
    }
    ASSIGN_OR_RETURN(decoded.message, DecodeProto(message));
    return decoded;
  }

 private:
  absl::Status DecodeJson(const pb::Descriptor* message) {
    if (!json_read_) {
      json_.assign(mapping_.json.slots(), JsonValue());
      RETURN_IF_ERROR(mapping_.json.Read(event_.payload, &json_text_, &json_));
      json_read_ = true;
    }
    // (Of what is gone there is no event that the envelope could hold.)
    if (event_.absent) return absl::OkStatus();
    for (const auto& [member, slot] : mapping_.json_members) {
      if (member == message && json_[slot].type != JsonValue::Type::kJson) {
        return InvalidArgument("the envelope of {} does not hold a {}", event_.event_type,
                               member->full_name());
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const pb::Message*> DecodeProto(const pb::Descriptor* message) {
    for (const auto& [type, parsed] : parsed_) {
      if (type == message) return &*parsed;
    }
    const pb::Descriptor* outer =
        mapping_.envelope.message != nullptr ? mapping_.envelope.message : message;
    if (mapping_.envelope.message == nullptr || parsed_.empty()) {
      Descriptors::Lease lease = mappings_.descriptors->Take(outer, event_.payload.size());
      if (!lease->ParseFromArray(event_.payload.data(), static_cast<int>(event_.payload.size()))) {
        return InvalidArgument("the payload is not a {}", outer->full_name());
      }
      parsed_.emplace_back(outer, std::move(lease));
    }
    const pb::Message& parsed = *parsed_.back().second;
    if (outer == message) return &parsed;
    const pb::FieldDescriptor* set =
        parsed.GetReflection()->GetOneofFieldDescriptor(parsed, mapping_.envelope.payload);
    if (set == nullptr || set->message_type() != message) {
      return InvalidArgument("the envelope of {} does not hold a {}", event_.event_type,
                             message->full_name());
    }
    return &parsed.GetReflection()->GetMessage(parsed, set);
  }

  const Mappings& mappings_;
  const EventMapping& mapping_;
  const Event& event_;
  const bool is_json_;
  std::vector<std::pair<const pb::Descriptor*, Descriptors::Lease>> parsed_;
  std::string json_text_;
  std::vector<JsonValue> json_;
  bool json_read_ = false;
};

absl::StatusOr<Cell> ReadCell(const ValueSource& source, const Decoded& decoded,
                              std::string* text) {
  Cell cell;
  cell.offset = static_cast<uint32_t>(text->size());
  ASSIGN_OR_RETURN(cell.state, ReadSource(source, decoded, text));
  cell.size = static_cast<uint32_t>(text->size()) - cell.offset;
  return cell;
}

// A ghost's message has the fields of one table's key. By another key nothing is said: no value of
// it is made up, protobuf's default neither, for that might be another aggregate's row.
bool NamesKey(const Handler& handler, const Decoded& decoded) {
  return decoded.json == nullptr ||
         std::ranges::none_of(handler.key, [&](const ValueSource& source) {
           return source.kind == ValueSource::Kind::kField &&
                  (*decoded.json)[source.json_slot].type == JsonValue::Type::kMissing;
         });
}

absl::Status AddRow(const Route& route, const Handler& handler, uint32_t cells,
                    const Decoded& decoded, MappedChange* change) {
  RowChange row;
  row.table = route.table;
  const bool gone = decoded.event->absent;  // what is mapped is its key alone
  row.operation = gone ? Operation::kDelete : handler.operation;
  row.first_cell = static_cast<uint32_t>(change->cells.size());
  change->cells.resize(row.first_cell + cells);
  uint32_t at = row.first_cell;
  for (const ValueSource& source : handler.key) {
    ASSIGN_OR_RETURN(change->cells[at], ReadCell(source, decoded, &change->text));
    if (change->cells[at].state != CellState::kText) {
      return InvalidArgument("a key column of the event's row has no value (key column {})",
                             at - row.first_cell + 1);
    }
    ++at;
  }
  change->rows.push_back(row);
  if (gone) return absl::OkStatus();
  for (const auto& [index, source] : handler.set) {
    ASSIGN_OR_RETURN(change->cells[at + index], ReadCell(source, decoded, &change->text));
  }
  if (handler.deleted_at.has_value()) {
    ASSIGN_OR_RETURN(change->cells.back(), ReadCell(*handler.deleted_at, decoded, &change->text));
  }
  return absl::OkStatus();
}

bool Replaces(const Handler& handler) { return handler.operation == Operation::kReplace; }

// A snapshot says how an aggregate stands: a table takes that of an event type which replaces its
// row (and may remove it under a condition).
absl::Status CheckRoute(const std::vector<Call>& calls, const Route& route, std::string_view type,
                        int schema_version) {
  const bool replaces = std::ranges::any_of(route.handlers, Replaces);
  for (const Handler& handler : route.handlers) {
    if (!handler.Takes(schema_version)) continue;
    switch (handler.operation) {
      case Operation::kReplace:
      case Operation::kIgnore:
        break;
      case Operation::kCall:
        if (calls[handler.call].snapshots != OnSnapshot::kRefuse) break;
        return FailedPrecondition(
            "handler {} takes events of type '{}' and no snapshots; say snapshots: call or "
            "snapshots: ignore there, or send the snapshot under another event type",
            calls[handler.call].handler, type);
      case Operation::kDelete:
        if (replaces) break;
        return FailedPrecondition(
            "event type '{}' deletes, and a snapshot says what is there: send the snapshot under "
            "an event type that is mapped with replace",
            type);
      case Operation::kMerge:
        return FailedPrecondition(
            "event type '{}' is merged, so a snapshot under its name could be a part of the state "
            "only: send the snapshot under an event type that is mapped with replace",
            type);
      case Operation::kIncrement:
        return FailedPrecondition(
            "event type '{}' is counted, and a count can't be told from a state: what a snapshot "
            "holds may have been counted already. Send the snapshot under an event type that "
            "counts nothing; a counting table is filled by a rebuild from events",
            type);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> AllHold(const std::vector<Condition>& conditions, const Decoded& decoded) {
  for (const Condition& condition : conditions) {
    ASSIGN_OR_RETURN(const bool holds, Holds(condition, decoded));
    if (!holds) return false;
  }
  return true;
}

// Whether the event is the handler's; it is called with it then, unless it ignores snapshots.
absl::StatusOr<bool> AddCall(const std::vector<Call>& calls, const Handler& handler,
                             Payload& payload, const Event& event, MappedChange* change) {
  const bool readable = payload.is_json() || handler.message != nullptr;
  if (readable || !handler.when.empty()) {
    ASSIGN_OR_RETURN(const Decoded decoded, payload.Decode(handler.message));
    ASSIGN_OR_RETURN(const bool holds, AllHold(handler.when, decoded));
    if (!holds) return false;
    if (decoded.message != nullptr && !change->data.has_value()) {
      ASSIGN_OR_RETURN(change->data, AsJson(payload.whole()));
    }
  }
  if (event.is_snapshot() && calls[handler.call].snapshots != OnSnapshot::kCall) return true;
  change->calls.push_back(handler.call);
  if (calls[handler.call].is_http()) change->outside.push_back(handler.call);
  return true;
}

std::string_view LastName(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// A type is found by its whole name; whoever wrote another one meant perhaps this.
template <typename Events>
absl::Status Undeclared(const Events& events, const std::string& type) {
  std::string meant;
  std::vector<std::string> known;
  for (const auto& [name, mapping] : events) {
    if (LastName(name) == LastName(type)) meant = name;
    known.push_back(name);
  }
  if (meant.empty()) meant = NearestWord(type, known);
  return InvalidArgument(
      "event type '{}' is declared in no projection; map it, or declare it with ignore{}", type,
      meant.empty() ? ""
                    : fmt::format(" (the file has '{}': did you mean that? The names must be the "
                                  "same)",
                                  meant));
}

}  // namespace

bool Handler::Takes(int schema_version) const {
  return schema_versions.empty() ||
         std::ranges::find(schema_versions, schema_version) != schema_versions.end();
}

absl::Status TakesSnapshots(const Mappings& mappings, const std::string& type, int schema_version) {
  const auto found = mappings.events.find(type);
  if (found == mappings.events.end()) {
    return NotFound("event type '{}' is declared in no projection", type);
  }
  for (const Route& route : found->second.routes) {
    RETURN_IF_ERROR(CheckRoute(mappings.calls, route, type, schema_version));
  }
  return absl::OkStatus();
}

absl::Status Mappings::Map(const Event& event, MappedChange* change) const {
  const auto found = events.find(event.event_type);
  if (found == events.end()) {
    if (ignore_undeclared) return absl::OkStatus();
    return Undeclared(events, event.event_type);
  }
  const EventMapping& mapping = found->second;
  ASSIGN_OR_RETURN(const bool is_json, IsJson(event));
  Payload payload(*this, mapping, event, is_json);
  for (const Route& route : mapping.routes) {
    bool taken = false;
    if (event.is_snapshot()) {
      RETURN_IF_ERROR(CheckRoute(calls, route, event.event_type, event.schema_version));
    }
    for (const Handler& handler : route.handlers) {
      if (!handler.Takes(event.schema_version)) continue;
      taken = true;
      if (event.absent && !Replaces(handler)) continue;
      if (handler.operation == Operation::kIgnore && handler.when.empty()) break;
      if (handler.operation == Operation::kCall) {
        ASSIGN_OR_RETURN(const bool called, AddCall(calls, handler, payload, event, change));
        if (called) break;
        continue;
      }
      ASSIGN_OR_RETURN(const Decoded decoded, payload.Decode(handler.message));
      // (Of what is gone only the key is known, and no condition on the rest.)
      ASSIGN_OR_RETURN(const bool holds,
                       event.absent ? absl::StatusOr<bool>(true) : AllHold(handler.when, decoded));
      if (!holds) continue;
      if (event.absent && !NamesKey(handler, decoded)) break;
      if (handler.operation != Operation::kIgnore) {
        RETURN_IF_ERROR(AddRow(route, handler, cells[route.table], decoded, change));
      }
      break;
    }
    if (!taken) {
      return InvalidArgument("event type '{}' has no mapping for schema_version {}",
                             event.event_type, event.schema_version);
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep::projections
