#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "absl/status/status.h"

namespace lockstep::pubsub::grpc_client {

// Makes one state out of those of several streams: OK when the first comes up, the reason when the
// last has gone, and again whenever another try fails. Told one at a time, in order, without a
// lock. Safe from any thread.
class StreamState {
 public:
  explicit StreamState(std::function<void(const absl::Status&)> tell);

  void OnStream(const absl::Status& state, bool* up);

 private:
  void Tell();

  const std::function<void(const absl::Status&)> tell_;

  std::mutex mu_;
  int up_ = 0;
  std::optional<absl::Status> next_;
  bool telling_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
