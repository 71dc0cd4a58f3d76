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
class ValueSource {
 public:
  // Of the message (`path` resolved when descriptors know it) or of JSON (`json_slot`).
  static ValueSource Field(std::optional<ProtoPath> path, int json_slot, Encoding encoding,
                           bool omit_default);
  // Of the envelope: event_id, version, occurred_at, …, or any attribute of the message.
  static ValueSource Attribute(std::string name);
  static ValueSource Constant(std::string text);
  static ValueSource Null();
  static ValueSource Now();  // the transaction's time

  // Appends the value's text to `out`.
  absl::StatusOr<CellState> Read(const Decoded& decoded, std::string* out) const;

  // In a full snapshot a field without presence is never absent, in JSON either.
  void FillDefaults() { fill_defaults_ = true; }
  // The slot that says whether the message around a nested field is there, in JSON.
  void SetJsonParent(int slot) { json_parent_ = slot; }
  // Counts down instead of up.
  void Negate() { negate_ = true; }

  const std::optional<ProtoPath>& path() const { return path_; }

 private:
  enum class Kind { kField, kAttribute, kConstant, kNull, kNow };

  absl::StatusOr<CellState> ReadSource(const Decoded& decoded, std::string* out) const;
  absl::StatusOr<CellState> ReadJson(const Decoded& decoded, std::string* out) const;
  absl::StatusOr<CellState> ReadAttribute(const Event& event, std::string* out) const;

  Kind kind_ = Kind::kNull;
  std::optional<ProtoPath> path_;
  int json_slot_ = -1;
  int json_parent_ = -1;
  Encoding encoding_ = Encoding::kPlain;
  bool omit_default_ = false;
  bool fill_defaults_ = false;
  bool negate_ = false;
  std::string text_;  // the constant, or the attribute's name
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
