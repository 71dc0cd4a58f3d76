#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

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
  JsonReader();

  // Each step of a path is a name with its alternatives (`video_id`, `videoId`). Answers the slot
  // in which Read leaves the value; the same path has the same slot.
  int Add(const std::vector<std::vector<std::string>>& path);
  // Only whether there is an object: its text is not kept.
  int AddPresence(const std::vector<std::vector<std::string>>& path);
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
  int AddNode(const std::vector<std::vector<std::string>>& path);
  int Find(int node, std::string_view name) const;

  std::vector<Node> nodes_;
  int slots_ = 0;
};

}  // namespace lockstep::projections
