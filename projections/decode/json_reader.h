#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "projections/decode/proto_text.h"
#include "projections/model/cells.h"

namespace lockstep::projections {

// A value found in a JSON document, as text: strings unescaped, numbers as they were written
// (no precision is lost), objects and arrays as JSON.
struct JsonValue {
  enum class Type : uint8_t { kMissing, kNull, kString, kNumber, kBool, kJson };
  Type type = Type::kMissing;
  uint32_t offset = 0;
  uint32_t size = 0;
};

// Takes chosen values out of JSON objects in one pass, without building the document. The paths are
// added when a file is loaded; afterwards reading is safe from any thread.
class JsonReader {
 public:
  // Each step of a path is a name with its alternatives (`video_id`, `videoId`). Answers the slot
  // in which Read leaves the value; the same path has the same slot.
  int Add(const std::vector<std::vector<std::string>>& path) { return AddSlot(path, &Node::slot); }
  // Only whether there is an object: its text is not kept.
  int AddPresence(const std::vector<std::vector<std::string>>& path) {
    return AddSlot(path, &Node::presence_slot);
  }
  int slots() const { return slots_; }

  // REQUIRES: `values` has slots() entries. Text goes to the end of `text`.
  absl::Status Read(std::string_view document, std::string* text,
                    std::vector<JsonValue>* values) const;

 private:
  friend class JsonSink;
  struct Child {
    std::string name;
    int node;
  };
  struct Node {
    std::vector<Child> children;
    int slot = -1;
    int presence_slot = -1;
  };
  int AddSlot(const std::vector<std::vector<std::string>>& path, int Node::*slot);
  int Find(int node, std::string_view name) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);  // the document
  int slots_ = 0;
};

// json_value.cc: a JSON value as Postgres's text. `field` says what the value stands for when
// descriptors know (an enum's names, base64 for bytes); null = nothing is known.
absl::StatusOr<CellState> AppendJsonCell(JsonValue::Type type, std::string_view text,
                                         const google::protobuf::FieldDescriptor* field,
                                         Encoding encoding, std::string* out);

}  // namespace lockstep::projections
