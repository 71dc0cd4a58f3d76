#include "projections/decode/proto_scalar.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <chrono>
#include <cmath>

#include "platform/status.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
using pb::FieldDescriptor;
namespace {

template <typename Float>
void AppendFloatOf(Float value, std::string* out) {
  if (std::isfinite(value)) return AppendNumber(value, out);
  *out += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

// The fraction with as many digits as it has.
void AppendNanos(int32_t nanos, std::string* out) {
  if (nanos == 0) return;
  fmt::format_to(std::back_inserter(*out), FMT_COMPILE(".{:09}"), nanos);
  while (out->back() == '0') out->pop_back();
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

}  // namespace

void AppendFloat(float value, std::string* out) { AppendFloatOf(value, out); }
void AppendFloat(double value, std::string* out) { AppendFloatOf(value, out); }

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

absl::Status AppendSeconds(const pb::Message& duration, std::string* out) {
  const auto [seconds, nanos] = ReadTime(duration);
  constexpr int64_t kMost = 315'576'000'000;  // 10,000 years, as protobuf says
  if (seconds < -kMost || seconds > kMost || nanos < -999'999'999 || nanos > 999'999'999 ||
      (seconds < 0 && nanos > 0) || (seconds > 0 && nanos < 0)) {
    return InvalidArgument("a Duration is beyond 10,000 years, or its parts differ in sign");
  }
  if (seconds < 0 || nanos < 0) *out += '-';
  AppendNumber(seconds < 0 ? -seconds : seconds, out);
  AppendNanos(nanos < 0 ? -nanos : nanos, out);
  return absl::OkStatus();
}

int EnumNumber(const pb::Message& message, const FieldDescriptor* field, int index) {
  const pb::Reflection* reflection = message.GetReflection();
  return index < 0 ? reflection->GetEnumValue(message, field)
                   : reflection->GetRepeatedEnumValue(message, field, index);
}

bool AppendEnumName(const pb::Message& message, const FieldDescriptor* field, int index,
                    std::string* out) {
  const int number = EnumNumber(message, field, index);
  const pb::EnumValueDescriptor* known = field->enum_type()->FindValueByNumber(number);
  if (known != nullptr) {
    *out += known->name();
  } else {
    AppendNumber(number, out);  // a newer producer's value passes as its number
  }
  return known != nullptr;
}

const std::string& StringAt(const pb::Message& message, const FieldDescriptor* field, int index,
                            std::string* scratch) {
  const pb::Reflection* reflection = message.GetReflection();
  return index < 0 ? reflection->GetStringReference(message, field, scratch)
                   : reflection->GetRepeatedStringReference(message, field, index, scratch);
}

absl::Status RefuseNul(const std::string& text, const FieldDescriptor* field) {
  if (text.find('\0') == std::string::npos) return absl::OkStatus();
  return InvalidArgument("field {} holds a NUL character, which Postgres has no text for",
                         field->full_name());
}

const pb::Message& MessageAt(const pb::Message& message, const FieldDescriptor* field, int index) {
  const pb::Reflection* reflection = message.GetReflection();
  return index < 0 ? reflection->GetMessage(message, field)
                   : reflection->GetRepeatedMessage(message, field, index);
}

double DoubleAt(const pb::Message& message, const FieldDescriptor* field, int index) {
  const pb::Reflection* reflection = message.GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    return index < 0 ? reflection->GetDouble(message, field)
                     : reflection->GetRepeatedDouble(message, field, index);
  }
  return index < 0 ? reflection->GetFloat(message, field)
                   : reflection->GetRepeatedFloat(message, field, index);
}

}  // namespace lockstep::projections
