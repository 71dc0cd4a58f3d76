#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

// Protobuf values as JSON, for jsonb columns. Names as in the .proto file, numbers as numbers
// (jsonb keeps all 64 bits), the rest as protobuf's own JSON has it: enums by name, bytes in
// base64, well-known types in their JSON form.
namespace lockstep::projections {

// The field: repeated, map, message or scalar.
absl::Status AppendJson(const google::protobuf::Message& message,
                        const google::protobuf::FieldDescriptor* field, std::string* out);

// One value: `index` of a repeated field, or -1 for a singular one.
absl::Status AppendJsonValue(const google::protobuf::Message& message,
                             const google::protobuf::FieldDescriptor* field, int index,
                             std::string* out);

absl::Status AppendMessageJson(const google::protobuf::Message& message, std::string* out);

// "text" with what JSON escapes escaped.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace lockstep::projections
