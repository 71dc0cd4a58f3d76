#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "projections/decode/json_reader.h"
#include "projections/decode/proto_path.h"
#include "projections/model/cells.h"

namespace lockstep::projections {

// A decoded payload: the message of the mapping, or the values that its JSON reader took out.
struct Decoded {
  const Event* event = nullptr;
  const google::protobuf::Message* message = nullptr;  // null = JSON
  const std::string* json_text = nullptr;
  const std::vector<JsonValue>* json = nullptr;
};

// Where a column's value comes from. Compiled when the file is loaded; const afterwards.
struct ValueSource {
  enum class Kind { kNull, kConstant, kAttribute, kField };

  Kind kind = Kind::kNull;
  // The constant; or the attribute's name: of the envelope (event_id, version, occurred_at, …), or
  // any other attribute of the message.
  std::string text;

  // Of a field.
  std::optional<ProtoPath> path;  // where descriptors know it
  int json_slot = -1;
  int json_parent = -1;  // slot that says whether the message around a nested field is there
  // What a field stands for that JSON leaves out, in a full snapshot: as in protobuf, a field
  // without presence is there when its message is.
  std::optional<std::string> json_default;
  Encoding encoding = Encoding::kPlain;
  bool omit_default = false;
  bool negate = false;  // counts down instead of up

  // Appends the value's text to `out`.
  absl::StatusOr<CellState> Read(const Decoded& decoded, std::string* out) const;
};

// `when:`, one condition on a value.
struct Condition {
  enum class Test { kIn, kNotIn, kPresent, kAbsent };
  ValueSource source;
  Test test = Test::kPresent;
  std::vector<std::optional<std::string>> values;  // nullopt = null

  absl::StatusOr<bool> Holds(const Decoded& decoded) const;
};

}  // namespace lockstep::projections
