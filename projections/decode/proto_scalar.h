#pragma once

#include <fmt/compile.h>

#include <cstdint>
#include <iterator>
#include <string>

#include "absl/status/status.h"

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

// Single values of a message as text: what columns (proto_text) and JSON (proto_json) have in
// common. `index` is that of a repeated field, or -1 for a singular one. All append to `out`.
namespace lockstep::projections {

template <typename Number>
void AppendNumber(Number value, std::string* out) {
  fmt::format_to(std::back_inserter(*out), FMT_COMPILE("{}"), value);
}

// NaN and the infinities in words that Postgres and protobuf's JSON share.
void AppendFloat(float value, std::string* out);
void AppendFloat(double value, std::string* out);

// RFC 3339 in UTC, with as many digits of a second as there are. Refuses what is no Timestamp.
absl::Status AppendTimestamp(const google::protobuf::Message& timestamp, std::string* out);

// Seconds with their sign, exactly: -3.5. Refuses what is no Duration.
absl::Status AppendSeconds(const google::protobuf::Message& duration, std::string* out);

// The name of an enum's value; one that the descriptors don't know, as its number. Answers whether
// it is a name.
bool AppendEnumName(const google::protobuf::Message& message,
                    const google::protobuf::FieldDescriptor* field, int index, std::string* out);
int EnumNumber(const google::protobuf::Message& message,
               const google::protobuf::FieldDescriptor* field, int index);

// A string or bytes; `scratch` may hold it.
const std::string& StringAt(const google::protobuf::Message& message,
                            const google::protobuf::FieldDescriptor* field, int index,
                            std::string* scratch);
// Postgres has no text for NUL.
absl::Status RefuseNul(const std::string& text, const google::protobuf::FieldDescriptor* field);

const google::protobuf::Message& MessageAt(const google::protobuf::Message& message,
                                           const google::protobuf::FieldDescriptor* field,
                                           int index);
// Of a float or double field.
double DoubleAt(const google::protobuf::Message& message,
                const google::protobuf::FieldDescriptor* field, int index);

}  // namespace lockstep::projections
