#include "projections/decode/proto_text.h"

#include <fmt/compile.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <chrono>
#include <cmath>
#include <iterator>

#include "absl/strings/escaping.h"
#include "platform/status.h"
#include "postgres/params.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
using pb::FieldDescriptor;
namespace {

// One value: `index` of a repeated field, or -1 for a singular one.
absl::Status AppendValue(const pb::Message& message, const FieldDescriptor* field, int index,
                         Encoding encoding, std::string* out);

// A word or a text, quoted where it is JSON.
absl::Status AppendText(std::string_view text, Encoding encoding, std::string* out) {
  if (encoding == Encoding::kJson) {
    AppendJsonString(text, out);
  } else {
    *out += text;
  }
  return absl::OkStatus();
}

template <typename Number>
absl::Status AppendNumber(Number value, std::string* out) {
  fmt::format_to(std::back_inserter(*out), FMT_COMPILE("{}"), value);
  return absl::OkStatus();
}

// NaN and the infinities in words that Postgres and protobuf's JSON share.
template <typename Float>
absl::Status AppendFloat(Float value, Encoding encoding, std::string* out) {
  if (std::isfinite(value)) return AppendNumber(value, out);
  return AppendText(std::isnan(value) ? "NaN"
                    : value > 0       ? "Infinity"
                                      : "-Infinity",
                    encoding, out);
}

absl::Status AppendEnum(const pb::EnumDescriptor* type, int number, Encoding encoding,
                        std::string* out) {
  const pb::EnumValueDescriptor* known =
      encoding == Encoding::kNumber ? nullptr : type->FindValueByNumber(number);
  if (known == nullptr) return AppendNumber(number, out);  // also a newer producer's value
  return AppendText(known->name(), encoding, out);
}

absl::Status AppendString(const std::string& text, const FieldDescriptor* field, Encoding encoding,
                          std::string* out) {
  if (field->type() == FieldDescriptor::TYPE_BYTES) {
    if (encoding != Encoding::kJson) return AppendText(postgres::EncodeBytea(text), encoding, out);
    std::string encoded;
    absl::Base64Escape(absl::string_view(text.data(), text.size()), &encoded);
    return AppendText(encoded, encoding, out);
  }
  if (text.find('\0') != std::string::npos) {
    return InvalidArgument("field {} holds a NUL character, which Postgres has no text for",
                           field->full_name());
  }
  return AppendText(text, encoding, out);
}

struct SecondsAndNanos {
  int64_t seconds;
  int32_t nanos;
};
SecondsAndNanos ReadTime(const pb::Message& time) {
  // seconds and nanos are the first two fields of Timestamp and of Duration.
  const pb::Descriptor* type = time.GetDescriptor();
  const pb::Reflection* reflection = time.GetReflection();
  return {reflection->GetInt64(time, type->field(0)), reflection->GetInt32(time, type->field(1))};
}

// The fraction with as many digits as it has.
void AppendNanos(int32_t nanos, std::string* out) {
  if (nanos == 0) return;
  fmt::format_to(std::back_inserter(*out), FMT_COMPILE(".{:09}"), nanos);
  while (out->back() == '0') out->pop_back();
}

// Seconds with their sign, exactly: -3.5. Refuses what is no Duration.
absl::Status AppendSeconds(const pb::Message& duration, std::string* out) {
  const auto [seconds, nanos] = ReadTime(duration);
  constexpr int64_t kMost = 315'576'000'000;  // 10,000 years, as protobuf says
  if (seconds < -kMost || seconds > kMost || nanos < -999'999'999 || nanos > 999'999'999 ||
      (seconds < 0 && nanos > 0) || (seconds > 0 && nanos < 0)) {
    return InvalidArgument("a Duration is beyond 10,000 years, or its parts differ in sign");
  }
  if (seconds < 0 || nanos < 0) *out += '-';
  RETURN_IF_ERROR(AppendNumber(seconds < 0 ? -seconds : seconds, out));
  AppendNanos(nanos < 0 ? -nanos : nanos, out);
  return absl::OkStatus();
}

// {"name":value,…} of the fields that are there.
absl::Status AppendObject(const pb::Message& message, std::string* out) {
  const pb::Descriptor* type = message.GetDescriptor();
  *out += '{';
  bool first = true;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->has_presence() && !message.GetReflection()->HasField(message, field)) continue;
    if (!first) *out += ',';
    first = false;
    AppendJsonString(field->name(), out);
    *out += ':';
    RETURN_IF_ERROR(AppendField(message, field, Encoding::kJson, out));
  }
  *out += '}';
  return absl::OkStatus();
}

absl::Status AppendMap(const pb::Message& message, const FieldDescriptor* field, std::string* out) {
  const pb::Reflection* reflection = message.GetReflection();
  const FieldDescriptor* key = field->message_type()->map_key();
  const FieldDescriptor* value = field->message_type()->map_value();
  *out += '{';
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    const pb::Message& entry = reflection->GetRepeatedMessage(message, field, i);
    if (i > 0) *out += ',';
    std::string name;
    RETURN_IF_ERROR(AppendValue(entry, key, -1, Encoding::kPlain, &name));
    AppendJsonString(name, out);
    *out += ':';
    RETURN_IF_ERROR(AppendValue(entry, value, -1, Encoding::kJson, out));
  }
  *out += '}';
  return absl::OkStatus();
}

// google.protobuf.Value: whichever of its kinds is set.
absl::Status AppendDynamicValue(const pb::Message& message, std::string* out) {
  const FieldDescriptor* set = message.GetReflection()->GetOneofFieldDescriptor(
      message, message.GetDescriptor()->oneof_decl(0));
  if (set == nullptr || set->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    *out += "null";
    return absl::OkStatus();
  }
  return AppendValue(message, set, -1, Encoding::kJson, out);
}

// A message that has no other form is JSON whatever the encoding.
absl::Status AppendMessage(const pb::Message& message, Encoding encoding, std::string* out) {
  const pb::Descriptor* type = message.GetDescriptor();
  const char* quote = encoding == Encoding::kJson ? "\"" : "";
  switch (type->well_known_type()) {
    case pb::Descriptor::WELLKNOWNTYPE_TIMESTAMP:
      *out += quote;
      RETURN_IF_ERROR(AppendTimestamp(message, out));
      *out += quote;
      return absl::OkStatus();
    case pb::Descriptor::WELLKNOWNTYPE_DURATION:
      *out += quote;
      RETURN_IF_ERROR(AppendSeconds(message, out));
      *out += encoding == Encoding::kJson      ? "s\""
              : encoding == Encoding::kSeconds ? ""
                                               : " seconds";
      return absl::OkStatus();
    case pb::Descriptor::WELLKNOWNTYPE_STRUCT:
    case pb::Descriptor::WELLKNOWNTYPE_LISTVALUE:
      return AppendField(message, type->field(0), Encoding::kJson, out);
    case pb::Descriptor::WELLKNOWNTYPE_VALUE:
      return AppendDynamicValue(message, out);
    case pb::Descriptor::WELLKNOWNTYPE_UNSPECIFIED:
    case pb::Descriptor::WELLKNOWNTYPE_FIELDMASK:
    case pb::Descriptor::WELLKNOWNTYPE_ANY:
      return AppendObject(message, out);
    default:  // the wrappers
      return AppendValue(message, type->field(0), -1, encoding, out);
  }
}

absl::Status AppendValue(const pb::Message& message, const FieldDescriptor* field, int index,
                         Encoding encoding, std::string* out) {
  const pb::Reflection* reflection = message.GetReflection();
#define LOCKSTEP_GET(Type)                           \
  (index < 0 ? reflection->Get##Type(message, field) \
             : reflection->GetRepeated##Type(message, field, index))
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return AppendNumber(LOCKSTEP_GET(Int32), out);
    case FieldDescriptor::CPPTYPE_INT64:
      return AppendNumber(LOCKSTEP_GET(Int64), out);
    case FieldDescriptor::CPPTYPE_UINT32:
      return AppendNumber(LOCKSTEP_GET(UInt32), out);
    case FieldDescriptor::CPPTYPE_UINT64:
      return AppendNumber(LOCKSTEP_GET(UInt64), out);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return AppendFloat(LOCKSTEP_GET(Double), encoding, out);
    case FieldDescriptor::CPPTYPE_FLOAT:  // as a float, which has fewer digits
      return AppendFloat(LOCKSTEP_GET(Float), encoding, out);
    case FieldDescriptor::CPPTYPE_BOOL:
      *out += LOCKSTEP_GET(Bool) ? "true" : "false";
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM:
      return AppendEnum(field->enum_type(), LOCKSTEP_GET(EnumValue), encoding, out);
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string scratch;
      return AppendString(
          index < 0 ? reflection->GetStringReference(message, field, &scratch)
                    : reflection->GetRepeatedStringReference(message, field, index, &scratch),
          field, encoding, out);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return AppendMessage(LOCKSTEP_GET(Message), encoding, out);
  }
#undef LOCKSTEP_GET
  return absl::OkStatus();
}

}  // namespace

absl::Status AppendField(const pb::Message& message, const FieldDescriptor* field,
                         Encoding encoding, std::string* out) {
  if (!field->is_repeated()) return AppendValue(message, field, -1, encoding, out);
  const bool json = encoding == Encoding::kJson;
  if (json && field->is_map()) return AppendMap(message, field, out);
  *out += json ? '[' : '{';
  std::string element;
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int i = 0; i < size; ++i) {
    if (i > 0) *out += ',';
    element.clear();
    RETURN_IF_ERROR(AppendValue(message, field, i, encoding, json ? out : &element));
    if (!json) AppendArrayElement(element, out);
  }
  *out += json ? ']' : '}';
  return absl::OkStatus();
}

absl::Status AppendTimestamp(const pb::Message& timestamp, std::string* out) {
  const auto [seconds, nanos] = ReadTime(timestamp);
  constexpr int64_t kYear1 = -62'135'596'800;
  constexpr int64_t kYear10000 = 253'402'300'800;
  if (seconds < kYear1 || seconds >= kYear10000 || nanos < 0 || nanos > 999'999'999) {
    return InvalidArgument("a Timestamp is outside the years 1 to 9999");
  }
  const auto days = std::chrono::floor<std::chrono::days>(
      std::chrono::sys_seconds(std::chrono::seconds(seconds)));
  const std::chrono::year_month_day date(days);
  const int64_t rest = seconds - int64_t{days.time_since_epoch().count()} * 86400;
  fmt::format_to(std::back_inserter(*out), FMT_COMPILE("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}"),
                 static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                 static_cast<unsigned>(date.day()), rest / 3600, rest / 60 % 60, rest % 60);
  AppendNanos(nanos, out);
  *out += 'Z';
  return absl::OkStatus();
}

void AppendArrayElement(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') *out += '\\';
    *out += c;
  }
  *out += '"';
}

void AppendJsonString(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(*out), FMT_COMPILE("\\u{:04x}"),
                     static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      *out += c;
    }
  }
  *out += '"';
}

}  // namespace lockstep::projections
