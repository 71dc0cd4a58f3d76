#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "projections/decode/json_reader.h"
#include "projections/decode/proto_text.h"
#include "projections/model/cells.h"

namespace lockstep::projections {

// A JSON value as Postgres's text. `field` says what the value stands for when descriptors know
// (an enum's names, base64 for bytes); null = nothing is known.
absl::StatusOr<CellState> AppendJsonCell(JsonValue::Type type, std::string_view text,
                                         const google::protobuf::FieldDescriptor* field,
                                         Encoding encoding, std::string* out);

}  // namespace lockstep::projections
