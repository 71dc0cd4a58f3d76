#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "sagas/definition/definition.h"

namespace lockstep::sagas {

// Where a value stands in {input, steps, saga}: `$.input.items[0].id`, `$.steps.reserve.id`,
// `$.input["first name"]`, `$.input.coupon?`. A name is letters, digits, _ and -, and anything that
// is not ASCII; other names stand in ["…"] with JSON's escapes. Nothing is called and nothing is
// counted: a name is looked up as it is, so `constructor` or `length` is a key like any other.
class Path {
 public:
  static constexpr size_t kMaxBytes = 1'024;
  static constexpr size_t kMaxNames = 32;

  // The whole text is a path.
  static absl::StatusOr<Path> Parse(std::string_view text);
  // Takes the path that `text` begins with off its front. REQUIRES: it begins with `$.`.
  static absl::StatusOr<Path> Take(std::string_view* text);

  // Null when there is none.
  const Json* Find(const Json& context) const;

  const std::string& text() const { return text_; }
  bool optional() const { return optional_; }  // it ends with ?: a missing value is null
  // "input", "steps" or "saga", or whatever else was written.
  const std::string& root() const { return root_; }
  // The name after the root; empty when there is none, or a number.
  std::string_view second() const;
  size_t size() const { return parts_.size() + 1; }

 private:
  using Part = std::variant<std::string, size_t>;  // a key, or a place in a list

  std::string text_;
  std::string root_;
  std::vector<Part> parts_;
  bool optional_ = false;
};

}  // namespace lockstep::sagas
