#include "projections/decode/json_value.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/time_util.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "platform/status.h"
#include "postgres/params.h"
#include "projections/decode/proto_path.h"

namespace lockstep::projections {
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
namespace {

absl::Status AppendEnum(JsonValue::Type type, std::string_view text, const FieldDescriptor* field,
                        Encoding encoding, std::string* out) {
  if (type == JsonValue::Type::kString) {
    if (encoding != Encoding::kNumber) {
      *out += text;
      return absl::OkStatus();
    }
    const EnumValueDescriptor* value = field->enum_type()->FindValueByName(std::string(text));
    if (value == nullptr) {
      return InvalidArgument("field {} holds a name that enum {} does not have", field->full_name(),
                             field->enum_type()->full_name());
    }
    *out += fmt::format("{}", value->number());
    return absl::OkStatus();
  }
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return InvalidArgument("field {} holds neither a name nor a number of enum {}",
                           field->full_name(), field->enum_type()->full_name());
  }
  const EnumValueDescriptor* known =
      encoding == Encoding::kNumber ? nullptr : field->enum_type()->FindValueByNumber(number);
  if (known != nullptr) {
    *out += known->name();
  } else {
    *out += text;
  }
  return absl::OkStatus();
}

template <typename Number>
bool AppendIfInteger(std::string_view text, std::string* out) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) {
    // 1.0 and 1e3 are integers too, as far as a double is exact.
    if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return false;
    double whole = 0;
    const auto [last, wrong] = std::from_chars(text.data(), end, whole);
    constexpr double kExact = 9'007'199'254'740'992;
    if (wrong != std::errc() || last != end || std::trunc(whole) != whole || whole > kExact ||
        whole < -kExact || (std::is_unsigned_v<Number> && whole < 0)) {
      return false;
    }
    const auto wide = static_cast<int64_t>(whole);
    if (!std::in_range<Number>(wide)) return false;
    number = static_cast<Number>(wide);
  }
  *out += fmt::format_int(number).str();
  return true;
}

// A number or, as protobuf's JSON writes 64 bits, a string; in the range of the field's type.
absl::Status AppendInteger(std::string_view text, const FieldDescriptor* field, std::string* out) {
  bool is_one = false;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      is_one = AppendIfInteger<int32_t>(text, out);
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      is_one = AppendIfInteger<uint32_t>(text, out);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      is_one = AppendIfInteger<uint64_t>(text, out);
      break;
    default:
      is_one = AppendIfInteger<int64_t>(text, out);
  }
  if (is_one) return absl::OkStatus();
  return InvalidArgument("field {} is {}, and its JSON is none", field->full_name(),
                         field->type_name());
}

bool IsInteger(const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return true;
    default:
      return false;
  }
}

bool IsTimestamp(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field->message_type()->full_name() == "google.protobuf.Timestamp";
}

absl::Status AppendScalar(JsonValue::Type type, std::string_view text, const FieldDescriptor* field,
                          Encoding encoding, std::string* out) {
  if (field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    return AppendEnum(type, text, field, encoding, out);
  }
  if (field != nullptr && IsInteger(field)) return AppendInteger(text, field, out);
  if (field != nullptr && field->type() == FieldDescriptor::TYPE_BYTES) {
    std::string bytes;
    const absl::string_view encoded(text.data(), text.size());
    if (!absl::Base64Unescape(encoded, &bytes) && !absl::WebSafeBase64Unescape(encoded, &bytes)) {
      return InvalidArgument("field {} is bytes, and its JSON is not base64", field->full_name());
    }
    *out += postgres::EncodeBytea(bytes);
    return absl::OkStatus();
  }
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
    std::string element;
    if (item.starts_with('"')) {
      const auto string = nlohmann::json::parse(item.begin(), item.end()).get<std::string>();
      RETURN_IF_ERROR(
          AppendScalar(JsonValue::Type::kString, string, field, Encoding::kPlain, &element));
    } else {
      RETURN_IF_ERROR(
          AppendScalar(JsonValue::Type::kNumber, item, field, Encoding::kPlain, &element));
    }
    AppendArrayElement(element, out);
  }
  *out += '}';
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CellState> AppendJsonCell(JsonValue::Type type, std::string_view text,
                                         const FieldDescriptor* field, Encoding encoding,
                                         std::string* out) {
  switch (type) {
    case JsonValue::Type::kMissing:
      return CellState::kAbsent;
    case JsonValue::Type::kNull:
      return CellState::kNull;
    default:
      break;
  }
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

void AppendDefault(const FieldDescriptor* field, Encoding encoding, std::string* out) {
  if (field->is_map()) {
    *out += "{}";
  } else if (field->is_repeated()) {
    *out += encoding == Encoding::kJson ? "[]" : "{}";
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const EnumValueDescriptor* value = field->default_value_enum();
    if (encoding == Encoding::kJson) {
      AppendJsonString(value->name(), out);
    } else {
      *out += encoding == Encoding::kNumber ? fmt::format("{}", value->number()) : value->name();
    }
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    *out += encoding == Encoding::kJson                    ? "\"\""
            : field->type() == FieldDescriptor::TYPE_BYTES ? "\\x"
                                                           : "";
  } else {
    *out += field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL ? "false" : "0";
  }
}

}  // namespace lockstep::projections
