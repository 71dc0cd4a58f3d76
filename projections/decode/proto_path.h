#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "projections/decode/proto_text.h"
#include "projections/model/cells.h"
#include "projections/model/table.h"

namespace google::protobuf {
class Descriptor;
}

namespace lockstep::projections {

// A field of a message, possibly nested (`owner.address.city`), resolved once when the file is
// loaded, so that an event costs no lookups by name.
class ProtoPath {
 public:
  // An unknown field names the nearest known one.
  static absl::StatusOr<ProtoPath> Resolve(const google::protobuf::Descriptor* message,
                                           std::string_view path);

  // What the column gets; `encoding` may be kPlain for "the natural one". An encoding that the
  // field can't have is an error.
  absl::StatusOr<ValueType> TypeOf(Encoding encoding) const;
  // The natural encoding: repeated scalars as arrays, messages and maps as JSON.
  Encoding Natural() const;

  // Appends the value's text. `omit_default`: a field without presence counts as absent at its
  // default.
  absl::StatusOr<CellState> Read(const google::protobuf::Message& message, Encoding encoding,
                                 bool omit_default, std::string* out) const;

  // The fields on the way, and the one at its end.
  const std::vector<const google::protobuf::FieldDescriptor*>& fields() const { return fields_; }
  const google::protobuf::FieldDescriptor* leaf() const { return fields_.back(); }
  // "3.1.7": the field numbers on the way.
  std::string Numbers() const;
  // The type's name as in a .proto file: "int64", "repeated string", "video.events.VideoCreated".
  std::string TypeName() const;

 private:
  std::vector<const google::protobuf::FieldDescriptor*> fields_;
};

// "int64", "repeated string", "video.events.VideoCreated". REQUIRES: it is no map.
std::string TypeName(const google::protobuf::FieldDescriptor* field);

// What a wrapper (google.protobuf.Int64Value, …) wraps; any other field is itself.
const google::protobuf::FieldDescriptor* Unwrapped(const google::protobuf::FieldDescriptor* field);

}  // namespace lockstep::projections
