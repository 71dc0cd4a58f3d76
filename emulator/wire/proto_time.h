#pragma once

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/time_util.h>

#include <chrono>

#include "platform/clock.h"

namespace lockstep::emulator {

inline google::protobuf::Timestamp ToProto(WallTime time) {
  const std::chrono::nanoseconds since_epoch = time.time_since_epoch();
  return google::protobuf::util::TimeUtil::NanosecondsToTimestamp(since_epoch.count());
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
  return google::protobuf::util::TimeUtil::MillisecondsToDuration(duration.count());
}

}  // namespace lockstep::emulator
