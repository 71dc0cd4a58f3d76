#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

// Protobuf values as the text that Postgres takes for them. All append to `out`.
namespace lockstep::projections {

// How a field becomes text, where there is a choice.
enum class Encoding {
  kPlain,    // enums by name, Duration as interval
  kNumber,   // enums by number
  kSeconds,  // Duration as seconds, exactly
  kArray,    // a Postgres array
  // For jsonb. Names as in the .proto file, numbers as numbers (jsonb keeps all 64 bits), the rest
  // as protobuf's own JSON has it: enums by name, bytes in base64, well-known types in their form.
  kJson,
};

// The field: a scalar or a message; a repeated one as a Postgres array or as JSON; a map as JSON.
absl::Status AppendField(const google::protobuf::Message& message,
                         const google::protobuf::FieldDescriptor* field, Encoding encoding,
                         std::string* out);

// RFC 3339 in UTC, with as many digits of a second as there are. Refuses what is no Timestamp.
absl::Status AppendTimestamp(const google::protobuf::Message& timestamp, std::string* out);

// An element of a Postgres array in its quotes.
void AppendArrayElement(std::string_view text, std::string* out);
// "text" with what JSON escapes escaped.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace lockstep::projections
