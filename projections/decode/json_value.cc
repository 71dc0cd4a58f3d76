#include <google/protobuf/descriptor.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/time_util.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/params.h"
#include "projections/decode/json_reader.h"
#include "projections/decode/proto_path.h"

namespace lockstep::projections {
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
namespace {

bool IsTimestamp(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field->message_type()->full_name() == "google.protobuf.Timestamp";
}

absl::Status AppendText(JsonValue::Type type, std::string_view text, const FieldDescriptor* field,
                        Encoding encoding, std::string* out) {
  if (encoding == Encoding::kSeconds && type == JsonValue::Type::kString) {
    if (!text.ends_with('s')) {
      return InvalidArgument("a Duration in JSON looks like \"3.5s\"");
    }
    text.remove_suffix(1);
  }
  if (field != nullptr && IsTimestamp(field)) {
    // In UTC, as from protobuf: a column without a time zone would not mind an offset.
    google::protobuf::Timestamp time;
    if (google::protobuf::util::TimeUtil::FromString(std::string(text), &time)) {
      return AppendTimestamp(time, out);
    }
  }
  if (text.find('\0') != std::string_view::npos) {
    return InvalidArgument("a JSON string holds a NUL character, which Postgres has no text for");
  }
  *out += text;
  return absl::OkStatus();
}

absl::Status AppendEnum(JsonValue::Type type, std::string_view text, const FieldDescriptor* field,
                        Encoding encoding, std::string* out) {
  const auto* names = field->enum_type();
  const bool by_number = encoding == Encoding::kNumber;
  if (type == JsonValue::Type::kString) {
    if (!by_number) return AppendText(type, text, field, encoding, out);
    const EnumValueDescriptor* value = names->FindValueByName(std::string(text));
    if (value == nullptr) {
      return InvalidArgument("field {} holds a name that enum {} does not have", field->full_name(),
                             names->full_name());
    }
    *out += fmt::format_int(value->number()).str();
    return absl::OkStatus();
  }
  int number = 0;
  if (!ParseWhole(text, &number)) {
    return InvalidArgument("field {} holds neither a name nor a number of enum {}",
                           field->full_name(), names->full_name());
  }
  const EnumValueDescriptor* value = by_number ? nullptr : names->FindValueByNumber(number);
  *out += value == nullptr ? text : value->name();
  return absl::OkStatus();
}

// A number or, as protobuf's JSON writes 64 bits, a string; in the range of the field's type.
template <typename Number>
bool ParseInteger(std::string_view text, Number* number) {
  if (ParseWhole(text, number)) return true;
  // 1.0 and 1e3 are integers too, as far as a double is exact.
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return false;
  double whole = 0;
  constexpr double kExact = 9'007'199'254'740'992;
  if (!ParseWhole(text, &whole) || std::trunc(whole) != whole || std::abs(whole) > kExact ||
      !std::in_range<Number>(static_cast<int64_t>(whole))) {
    return false;
  }
  *number = static_cast<Number>(whole);
  return true;
}

template <typename Number>
absl::Status AppendInteger(std::string_view text, const FieldDescriptor* field, std::string* out) {
  Number number{};
  if (!ParseInteger(text, &number)) {
    return InvalidArgument("field {} is {}, and its JSON is none", field->full_name(),
                           field->type_name());
  }
  *out += fmt::format_int(number).str();
  return absl::OkStatus();
}

absl::Status AppendBytes(std::string_view text, const FieldDescriptor* field, std::string* out) {
  std::string bytes;
  const absl::string_view encoded(text.data(), text.size());
  if (!absl::Base64Unescape(encoded, &bytes) && !absl::WebSafeBase64Unescape(encoded, &bytes)) {
    return InvalidArgument("field {} is bytes, and its JSON is not base64", field->full_name());
  }
  *out += postgres::EncodeBytea(bytes);
  return absl::OkStatus();
}

absl::Status AppendScalar(JsonValue::Type type, std::string_view text, const FieldDescriptor* field,
                          Encoding encoding, std::string* out) {
  if (field == nullptr) return AppendText(type, text, field, encoding, out);
  if (field->type() == FieldDescriptor::TYPE_BYTES) return AppendBytes(text, field, out);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      return AppendEnum(type, text, field, encoding, out);
    case FieldDescriptor::CPPTYPE_INT32:
      return AppendInteger<int32_t>(text, field, out);
    case FieldDescriptor::CPPTYPE_INT64:
      return AppendInteger<int64_t>(text, field, out);
    case FieldDescriptor::CPPTYPE_UINT32:
      return AppendInteger<uint32_t>(text, field, out);
    case FieldDescriptor::CPPTYPE_UINT64:
      return AppendInteger<uint64_t>(text, field, out);
    default:
      return AppendText(type, text, field, encoding, out);
  }
}

// Where the value that begins at `at` ends. `text` is JSON as JsonReader writes it: valid, and
// without white space.
size_t EndOfValue(std::string_view text, size_t at) {
  int depth = 0;
  bool in_string = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if ((c == ']' || c == '}') && depth-- == 0) {
      return at;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return at;
}

// Element by element from the text itself: a parsed number would lose digits.
absl::Status AppendArrayOf(std::string_view text, const FieldDescriptor* field, std::string* out) {
  if (!text.starts_with('[')) {
    return InvalidArgument("a JSON array is wanted where a mapping says so");
  }
  *out += '{';
  for (size_t at = 1; at < text.size() && text[at] != ']';) {
    const size_t end = EndOfValue(text, at);
    const std::string_view item = text.substr(at, end - at);
    if (at > 1) *out += ',';
    at = end < text.size() && text[end] == ',' ? end + 1 : end;
    if (item == "null") {
      *out += "NULL";
      continue;
    }
    const bool quoted = item.starts_with('"');
    std::string element;
    RETURN_IF_ERROR(AppendScalar(
        quoted ? JsonValue::Type::kString : JsonValue::Type::kNumber,
        quoted ? nlohmann::json::parse(item.begin(), item.end()).get<std::string>() : item, field,
        Encoding::kPlain, &element));
    AppendArrayElement(element, out);
  }
  *out += '}';
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CellState> AppendJsonCell(JsonValue::Type type, std::string_view text,
                                         const FieldDescriptor* field, Encoding encoding,
                                         std::string* out) {
  if (type == JsonValue::Type::kMissing) return CellState::kAbsent;
  if (type == JsonValue::Type::kNull) return CellState::kNull;
  if (field != nullptr) field = Unwrapped(field);
  if (encoding == Encoding::kArray) {
    if (type != JsonValue::Type::kJson) {
      return InvalidArgument("a JSON array is wanted where a mapping says so");
    }
    RETURN_IF_ERROR(AppendArrayOf(text, field, out));
  } else if (encoding == Encoding::kJson && type == JsonValue::Type::kString) {
    AppendJsonString(text, out);
  } else if (type == JsonValue::Type::kJson && encoding != Encoding::kJson && field != nullptr) {
    return InvalidArgument("field {} is {}, and its JSON is an object or a list",
                           field->full_name(), field->type_name());
  } else if (type == JsonValue::Type::kJson || encoding == Encoding::kJson) {
    *out += text;
  } else {
    RETURN_IF_ERROR(AppendScalar(type, text, field, encoding, out));
  }
  return CellState::kText;
}

}  // namespace lockstep::projections
