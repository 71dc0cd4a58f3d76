#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "projections/decode/descriptors.h"
#include "projections/decode/json_reader.h"
#include "projections/decode/proto_path.h"
#include "projections/model/call.h"
#include "projections/model/cells.h"
#include "projections/model/table.h"

namespace google::protobuf {
class OneofDescriptor;
}

namespace lockstep::projections {

// Where a column's value comes from. Compiled when the file is loaded; const afterwards.
struct ValueSource {
  enum class Kind { kNull, kConstant, kAttribute, kField };

  Kind kind = Kind::kNull;
  // The constant; the field's path; or the attribute's name: of the envelope (event_id, version,
  // occurred_at, …), or any other attribute of the message.
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
};

// `when:`, one condition on a value.
struct Condition {
  enum class Test { kIn, kNotIn, kPresent, kAbsent };
  ValueSource source;
  Test test = Test::kPresent;
  std::vector<std::optional<std::string>> values;  // nullopt = null
};

// What one event type does to one table, for some schema versions and under some conditions.
struct Handler {
  Operation operation = Operation::kIgnore;
  std::vector<int> schema_versions;                       // empty = all
  const google::protobuf::Descriptor* message = nullptr;  // null = JSON only
  std::vector<Condition> when;
  std::vector<ValueSource> key;                       // one per key column
  std::vector<std::pair<uint32_t, ValueSource>> set;  // index among the table's values, source
  std::optional<ValueSource> deleted_at;
  bool parks_on_gap = false;
  uint32_t call = 0;  // of kCall: which

  bool Takes(int schema_version) const;
};

// The handlers of one event type for one table (or for one entry of `handlers:`, which has none);
// the first that takes the event is used.
struct Route {
  static constexpr uint32_t kNoTable = static_cast<uint32_t>(-1);
  uint32_t table = kNoTable;
  std::vector<Handler> handlers;
};

// An envelope message whose oneof holds the event itself.
struct Envelope {
  const google::protobuf::Descriptor* message = nullptr;
  const google::protobuf::OneofDescriptor* payload = nullptr;
};

// Everything about one event type.
struct EventMapping {
  std::vector<Route> routes;
  JsonReader json;
  Envelope envelope;  // message null = the payload is the event itself
  // With an envelope and JSON: the slot that says that the expected member is there.
  std::vector<std::pair<const google::protobuf::Descriptor*, int>> json_members;
};

// The mappings of one group: event type → rows. Const and safe from any thread once loaded.
struct Mappings {
  std::shared_ptr<Descriptors> descriptors;
  std::unordered_map<std::string, EventMapping> events;
  bool ignore_undeclared = false;
  // Cells per row of each table.
  std::vector<uint32_t> cells;
  // What handlers call.
  std::vector<Call> calls;

  // Appends the event's rows. A failure is poison, without values of the payload in its words.
  absl::Status Map(const Event& event, MappedChange* change) const;
};

}  // namespace lockstep::projections
