#pragma once

#include <compare>
#include <functional>
#include <string>
#include <utility>

namespace lockstep {

// A string that means one thing: an EventId can't be passed where a MessageId is wanted.
template <typename Tag>
class StrongId {
 public:
  StrongId() = default;
  explicit StrongId(std::string value) : value_(std::move(value)) {}

  const std::string& value() const& { return value_; }
  std::string value() && { return std::move(value_); }
  bool empty() const { return value_.empty(); }

  friend auto operator<=>(const StrongId&, const StrongId&) = default;

 private:
  std::string value_;
};

using EventId = StrongId<struct EventIdTag>;
using ConsumerGroup = StrongId<struct ConsumerGroupTag>;
using MessageId = StrongId<struct MessageIdTag>;

}  // namespace lockstep

template <typename Tag>
struct std::hash<lockstep::StrongId<Tag>> {
  size_t operator()(const lockstep::StrongId<Tag>& id) const {
    return std::hash<std::string>()(id.value());
  }
};
