#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "google/pubsub/v1/pubsub.pb.h"

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

  bool Matches(const google::pubsub::v1::PubsubMessage& message) const { return matches_(message); }

 private:
  using Predicate = std::function<bool(const google::pubsub::v1::PubsubMessage&)>;
  friend class FilterParser;

  explicit Filter(Predicate matches) : matches_(std::move(matches)) {}
  Predicate matches_;
};

}  // namespace lockstep::emulator
