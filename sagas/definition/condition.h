#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "sagas/definition/definition.h"
#include "sagas/definition/path.h"

namespace lockstep::sagas {

// When a step is run, as `when:` says it:
//
//   $.input.total > 0 and not ($.input.free or $.steps.check.verdict == 'known')
//
// Paths (path.h; a missing one is null), numbers, 'texts' (a quote in one is written twice), true,
// false, null; == != < <= > >=; not, and, or, in this order of binding; parentheses. Numbers are
// compared by value and texts by their characters' code points. == holds for equal values of one
// type, != is its opposite; the others are false unless both sides are numbers or both are texts. A
// value by itself holds when it is true; nothing else does.
//
// Pure, bounded (kMaxBytes, kMaxDepth), never an error once it is parsed. Safe from any thread.
class Condition {
 public:
  static constexpr size_t kMaxBytes = 1'024;
  static constexpr int kMaxDepth = 32;

  // The status says at which character, counted from 1, what is wrong.
  static absl::StatusOr<Condition> Parse(std::string_view text);

  bool Holds(const Json& context) const { return Holds(context, root_); }
  std::vector<Path> paths() const;

 private:
  friend class ConditionParser;

  enum class Kind {
    kLiteral,
    kPath,
    kEqual,
    kUnequal,
    kLess,
    kAtMost,
    kMore,
    kAtLeast,
    kNot,
    kAnd,
    kOr
  };
  struct Node {
    Kind kind = Kind::kLiteral;
    Json literal;
    std::optional<Path> path;
    size_t left = 0, right = 0;  // in nodes_
  };

  bool Holds(const Json& context, size_t node) const;
  const Json& Value(const Json& context, size_t node) const;

  std::vector<Node> nodes_;
  size_t root_ = 0;
};

// Whether they are the same value: 1 and 1.0 are, and maps whatever the order of their keys.
bool SameValue(const Json& a, const Json& b);

}  // namespace lockstep::sagas
