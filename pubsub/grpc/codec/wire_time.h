#pragma once

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include <chrono>

#include "platform/clock.h"

namespace lockstep::pubsub::grpc_client {

inline WallTime FromProto(const google::protobuf::Timestamp& time) {
  return WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(time.seconds()) + std::chrono::nanoseconds(time.nanos())));
}

inline google::protobuf::Timestamp ToProto(WallTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  google::protobuf::Timestamp proto;
  proto.set_seconds(seconds.time_since_epoch().count());
  proto.set_nanos(static_cast<int32_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time - seconds).count()));
  return proto;
}

inline Millis FromProto(const google::protobuf::Duration& duration) {
  return std::chrono::duration_cast<Millis>(std::chrono::seconds(duration.seconds()) +
                                            std::chrono::nanoseconds(duration.nanos()));
}

inline google::protobuf::Duration ToProto(Millis duration) {
  google::protobuf::Duration proto;
  proto.set_seconds(duration.count() / 1000);
  proto.set_nanos(static_cast<int32_t>(duration.count() % 1000 * 1'000'000));
  return proto;
}

}  // namespace lockstep::pubsub::grpc_client
