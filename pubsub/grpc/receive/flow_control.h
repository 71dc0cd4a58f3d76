#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::pubsub::grpc_client {

struct Load {
  int64_t messages = 0;
  int64_t bytes = 0;

  void Add(int64_t message_bytes) {
    ++messages;
    bytes += message_bytes;
  }
};

// Counts what has been handed over and is neither acked nor released, and holds streams back while
// that is too much. Servers are asked for the same limits, and not all of them listen. Safe from
// any thread.
class FlowControl {
 public:
  explicit FlowControl(Load limit) : limit_(limit) {}

  void Take(Load load) {
    std::scoped_lock lock(mu_);
    taken_.messages += load.messages;
    taken_.bytes += load.bytes;
  }

  void Give(Load load) {
    std::unique_lock lock(mu_);
    taken_.messages -= load.messages;
    taken_.bytes -= load.bytes;
    if (!Full()) Resume(lock);
  }

  // True: read on. False: `resume` will be called when there is room, on the thread of that Give.
  bool MayRead(std::function<void()> resume) {
    std::scoped_lock lock(mu_);
    if (!Full()) return true;
    paused_.push_back(std::move(resume));
    return false;
  }

  // From now on everybody may read (the receiver stops: streams are read to their end).
  void Open() {
    std::unique_lock lock(mu_);
    open_ = true;
    Resume(lock);
  }

 private:
  bool Full() const {
    return !open_ && (taken_.messages >= std::max<int64_t>(1, limit_.messages) ||
                      taken_.bytes >= std::max<int64_t>(1, limit_.bytes));
  }

  void Resume(std::unique_lock<std::mutex>& lock) {
    const std::vector<std::function<void()>> paused = std::exchange(paused_, {});
    lock.unlock();
    for (const auto& resume : paused) resume();
  }

  const Load limit_;

  std::mutex mu_;
  Load taken_;
  bool open_ = false;
  std::vector<std::function<void()>> paused_;
};

}  // namespace lockstep::pubsub::grpc_client
