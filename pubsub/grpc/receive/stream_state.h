#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"

namespace lockstep::pubsub::grpc_client {

// Makes one state out of those of several streams: OK when the first comes up, the reason when the
// last has gone, and again whenever another try fails. Told one at a time, in order, without a
// lock. Safe from any thread.
class StreamState {
 public:
  explicit StreamState(std::function<void(const absl::Status&)> tell) : tell_(std::move(tell)) {}

  // `up` is what is noted here about the stream.
  void OnStream(const absl::Status& state, bool* up) {
    std::unique_lock lock(mu_);
    const int before = up_;
    up_ += static_cast<int>(state.ok()) - static_cast<int>(*up);
    *up = state.ok();
    if (state.ok() ? before > 0 : up_ > 0) return;  // another stream is there
    next_ = state;
    if (telling_) return;  // the teller will see it
    telling_ = true;
    while (next_.has_value()) {
      const absl::Status next = *std::exchange(next_, std::nullopt);
      lock.unlock();
      tell_(next);
      lock.lock();
    }
    telling_ = false;
  }

 private:
  const std::function<void(const absl::Status&)> tell_;

  std::mutex mu_;
  int up_ = 0;
  std::optional<absl::Status> next_;
  bool telling_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
