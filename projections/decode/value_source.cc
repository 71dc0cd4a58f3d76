#include "projections/decode/value_source.h"

#include <algorithm>

#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::projections {
namespace {

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

absl::StatusOr<CellState> ReadSource(const ValueSource& source, const Decoded& decoded,
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

}  // namespace

absl::StatusOr<CellState> ValueSource::Read(const Decoded& decoded, std::string* out) const {
  const size_t start = out->size();
  ASSIGN_OR_RETURN(const CellState state, ReadSource(*this, decoded, out));
  if (negate && state == CellState::kText) {
    if ((*out)[start] == '-') {
      out->erase(start, 1);
    } else {
      out->insert(start, 1, '-');
    }
  }
  return state;
}

absl::StatusOr<bool> Condition::Holds(const Decoded& decoded) const {
  std::string text;
  ASSIGN_OR_RETURN(const CellState state, source.Read(decoded, &text));
  if (test == Test::kPresent) return state != CellState::kAbsent;
  if (test == Test::kAbsent) return state == CellState::kAbsent;
  const bool found = state != CellState::kAbsent &&
                     std::ranges::any_of(values, [&](const std::optional<std::string>& value) {
                       return value.has_value() ? state == CellState::kText && *value == text
                                                : state == CellState::kNull;
                     });
  return found == (test == Test::kIn);
}

}  // namespace lockstep::projections
