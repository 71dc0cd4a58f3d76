#include "projections/decode/value_source.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <utility>

#include "platform/duration.h"
#include "platform/status.h"
#include "projections/decode/json_value.h"

namespace lockstep::projections {

ValueSource ValueSource::Field(std::optional<ProtoPath> path, int json_slot, Encoding encoding,
                               bool omit_default) {
  ValueSource source;
  source.kind_ = Kind::kField;
  source.path_ = std::move(path);
  source.json_slot_ = json_slot;
  source.encoding_ = encoding;
  source.omit_default_ = omit_default;
  return source;
}

ValueSource ValueSource::Attribute(std::string name) {
  ValueSource source;
  source.kind_ = Kind::kAttribute;
  source.text_ = std::move(name);
  return source;
}

ValueSource ValueSource::Constant(std::string text) {
  ValueSource source;
  source.kind_ = Kind::kConstant;
  source.text_ = std::move(text);
  return source;
}

ValueSource ValueSource::Null() { return {}; }

ValueSource ValueSource::Now() {
  ValueSource source;
  source.kind_ = Kind::kNow;
  return source;
}

absl::StatusOr<CellState> ValueSource::Read(const Decoded& decoded, std::string* out) const {
  const size_t start = out->size();
  ASSIGN_OR_RETURN(const CellState state, ReadSource(decoded, out));
  if (negate_ && state == CellState::kText) {
    if ((*out)[start] == '-') {
      out->erase(start, 1);
    } else {
      out->insert(start, 1, '-');
    }
  }
  return state;
}

absl::StatusOr<CellState> ValueSource::ReadSource(const Decoded& decoded, std::string* out) const {
  switch (kind_) {
    case Kind::kField:
      if (decoded.message == nullptr) return ReadJson(decoded, out);
      return path_->Read(*decoded.message, encoding_, omit_default_, out);
    case Kind::kAttribute:
      return ReadAttribute(*decoded.event, out);
    case Kind::kConstant:
      *out += text_;
      return CellState::kText;
    case Kind::kNow:
      *out += "now";  // which Postgres reads as the transaction's time
      return CellState::kText;
    case Kind::kNull:
      break;
  }
  return CellState::kNull;
}

absl::StatusOr<CellState> ValueSource::ReadJson(const Decoded& decoded, std::string* out) const {
  const JsonValue& value = (*decoded.json)[json_slot_];
  const auto* field = path_.has_value() ? path_->leaf() : nullptr;
  // As in protobuf: of a message that is there, a field without presence is there too.
  if (value.type == JsonValue::Type::kMissing && fill_defaults_ && field != nullptr &&
      !field->has_presence() && !omit_default_ &&
      (json_parent_ < 0 || (*decoded.json)[json_parent_].type == JsonValue::Type::kJson)) {
    AppendDefault(field, encoding_, out);
    return CellState::kText;
  }
  const std::string_view text(decoded.json_text->data() + value.offset, value.size);
  return AppendJsonCell(value.type, text, field, encoding_, out);
}

absl::StatusOr<CellState> ValueSource::ReadAttribute(const Event& event, std::string* out) const {
  if (text_ == "event_id") {
    *out += event.event_id.value();
  } else if (text_ == "aggregate_id") {
    *out += event.aggregate.id;
  } else if (text_ == "aggregate_type") {
    *out += event.aggregate.type;
  } else if (text_ == "tenant_id") {
    if (!event.aggregate.tenant_id.has_value()) return CellState::kNull;
    *out += *event.aggregate.tenant_id;
  } else if (text_ == "event_type") {
    *out += event.event_type;
  } else if (text_ == "version") {
    *out += fmt::format_int(event.version).str();
  } else if (text_ == "schema_version") {
    *out += fmt::format_int(event.schema_version).str();
  } else if (text_ == "occurred_at") {
    *out += FormatTimestamp(event.occurred_at);
  } else if (text_ == "content_type") {
    *out += event.content_type;
  } else if (text_ == "topic") {
    *out += event.topic;
  } else {
    const auto found = event.attributes.find(text_);
    if (found == event.attributes.end()) return CellState::kAbsent;
    *out += found->second;
  }
  return CellState::kText;
}

absl::StatusOr<bool> Condition::Holds(const Decoded& decoded) const {
  std::string text;
  ASSIGN_OR_RETURN(const CellState state, source.Read(decoded, &text));
  switch (test) {
    case Test::kPresent:
      return state != CellState::kAbsent;
    case Test::kAbsent:
      return state == CellState::kAbsent;
    case Test::kIn:
    case Test::kNotIn:
      break;
  }
  const bool found =
      state != CellState::kAbsent &&
      std::any_of(values.begin(), values.end(), [&](const std::optional<std::string>& value) {
        return value.has_value() ? state == CellState::kText && *value == text
                                 : state == CellState::kNull;
      });
  return found == (test == Test::kIn);
}

}  // namespace lockstep::projections
