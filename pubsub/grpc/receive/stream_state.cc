#include "pubsub/grpc/receive/stream_state.h"

#include <utility>

namespace lockstep::pubsub::grpc_client {

StreamState::StreamState(std::function<void(const absl::Status&)> tell) : tell_(std::move(tell)) {}

void StreamState::OnStream(const absl::Status& state, bool* up) {
  {
    std::scoped_lock lock(mu_);
    const int before = up_;
    up_ += static_cast<int>(state.ok()) - static_cast<int>(*up);
    *up = state.ok();
    if (state.ok() ? before > 0 : up_ > 0) return;  // another stream is there
    next_ = state;
    if (telling_) return;  // the teller will see it
    telling_ = true;
  }
  Tell();
}

void StreamState::Tell() {
  std::unique_lock lock(mu_);
  while (next_.has_value()) {
    const absl::Status state = *std::exchange(next_, std::nullopt);
    lock.unlock();
    tell_(state);
    lock.lock();
  }
  telling_ = false;
}

}  // namespace lockstep::pubsub::grpc_client
