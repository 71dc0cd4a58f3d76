#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace google::pubsub::v1 {
class PubsubMessage;
}

namespace lockstep::emulator {

// A subscription's filter over the attributes of a message:
//
//   attributes:name                    the attribute is there
//   attributes.name = "x", != "x"      its value (!= also when it is missing)
//   hasPrefix(attributes.name, "x")    its beginning
//   NOT e, -e, e AND e, e OR e, (e)    AND and OR mix only with parentheses
//
// Immutable, so safe from any thread.
class Filter {
 public:
  static constexpr size_t kMaxBytes = 256;

  // INVALID_ARGUMENT with the place of the mistake.
  static absl::StatusOr<Filter> Parse(std::string_view text);

  bool Matches(const google::pubsub::v1::PubsubMessage& message) const;

 private:
  enum class Kind { kHas, kEquals, kPrefix, kNot, kAnd, kOr };
  struct Node {
    Kind kind;
    std::string name;
    std::string value;
    std::vector<Node> children;
  };
  friend class FilterParser;

  static bool Evaluate(const Node& node, const google::pubsub::v1::PubsubMessage& message);

  explicit Filter(Node root) : root_(std::move(root)) {}
  Node root_;
};

}  // namespace lockstep::emulator
