#include "pubsub/grpc/receive/flow_control.h"

#include <algorithm>
#include <utility>

namespace lockstep::pubsub::grpc_client {

FlowControl::FlowControl(int64_t max_messages, int64_t max_bytes)
    : max_messages_(std::max<int64_t>(1, max_messages)),
      max_bytes_(std::max<int64_t>(1, max_bytes)) {}

bool FlowControl::Full() const {
  return !open_ && (messages_ >= max_messages_ || bytes_ >= max_bytes_);
}

void FlowControl::Take(int64_t messages, int64_t bytes) {
  std::scoped_lock lock(mu_);
  messages_ += messages;
  bytes_ += bytes;
}

void FlowControl::Give(int64_t messages, int64_t bytes) {
  std::vector<std::function<void()>> resume;
  {
    std::scoped_lock lock(mu_);
    messages_ -= messages;
    bytes_ -= bytes;
    if (!Full()) resume.swap(paused_);
  }
  for (const auto& run : resume) run();
}

bool FlowControl::MayRead(std::function<void()> resume) {
  std::scoped_lock lock(mu_);
  if (!Full()) return true;
  paused_.push_back(std::move(resume));
  return false;
}

void FlowControl::Open() {
  std::vector<std::function<void()>> resume;
  {
    std::scoped_lock lock(mu_);
    open_ = true;
    resume.swap(paused_);
  }
  for (const auto& run : resume) run();
}

}  // namespace lockstep::pubsub::grpc_client
