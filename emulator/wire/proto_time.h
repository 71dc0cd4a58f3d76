#pragma once

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include <chrono>

#include "platform/clock.h"

namespace lockstep::emulator {

inline google::protobuf::Timestamp ToProto(WallTime time) {
  const auto since_epoch = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  google::protobuf::Timestamp proto;
  proto.set_seconds(seconds.count());
  proto.set_nanos(static_cast<int32_t>(std::chrono::nanoseconds(since_epoch - seconds).count()));
  return proto;
}

// Clamped to what a WallTime holds (the years 1678 to 2261): "the beginning of time" is a usual
// thing to seek to.
inline WallTime FromProto(const google::protobuf::Timestamp& proto) {
  constexpr int64_t kLimit = 9'200'000'000;
  if (proto.seconds() > kLimit) return WallTime(std::chrono::seconds(kLimit));
  if (proto.seconds() < -kLimit) return WallTime(std::chrono::seconds(-kLimit));
  return WallTime(std::chrono::seconds(proto.seconds())) + std::chrono::nanoseconds(proto.nanos());
}

inline Millis FromProto(const google::protobuf::Duration& proto) {
  return Millis(proto.seconds() * 1000 + proto.nanos() / 1'000'000);
}

inline google::protobuf::Duration ToProto(Millis duration) {
  google::protobuf::Duration proto;
  proto.set_seconds(duration.count() / 1000);
  proto.set_nanos(static_cast<int32_t>(duration.count() % 1000 * 1'000'000));
  return proto;
}

}  // namespace lockstep::emulator
