#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

// Protobuf values as the text that Postgres takes for them.
namespace lockstep::projections {

// How a field becomes text, where there is a choice.
enum class Encoding {
  kPlain,    // enums by name, Duration as interval
  kNumber,   // enums by number
  kSeconds,  // Duration as seconds, exactly
  kJson,     // jsonb
  kArray,    // a Postgres array
};

// One value: `index` of a repeated field, or -1 for a singular one. Appends to `out`.
absl::Status AppendValue(const google::protobuf::Message& message,
                         const google::protobuf::FieldDescriptor* field, int index,
                         Encoding encoding, std::string* out);

// The repeated field as a Postgres array: {"a","b"}.
absl::Status AppendArray(const google::protobuf::Message& message,
                         const google::protobuf::FieldDescriptor* field, Encoding encoding,
                         std::string* out);

// An element of a Postgres array in its quotes.
void AppendArrayElement(std::string_view text, std::string* out);

}  // namespace lockstep::projections
