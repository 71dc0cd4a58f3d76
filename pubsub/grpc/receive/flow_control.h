#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace lockstep::pubsub::grpc_client {

// Counts what has been handed over and is neither acked nor released, and holds streams back while
// that is too much. Servers are asked for the same limits, and not all of them listen. Safe from
// any thread.
class FlowControl {
 public:
  FlowControl(int64_t max_messages, int64_t max_bytes);

  void Take(int64_t messages, int64_t bytes);
  void Give(int64_t messages, int64_t bytes);

  // True: read on. False: `resume` will be called when there is room, on the thread of that Give.
  bool MayRead(std::function<void()> resume);

  // From now on everybody may read (the receiver stops: streams are read to their end).
  void Open();

 private:
  bool Full() const;

  const int64_t max_messages_;
  const int64_t max_bytes_;

  std::mutex mu_;
  int64_t messages_ = 0;
  int64_t bytes_ = 0;
  bool open_ = false;
  std::vector<std::function<void()>> paused_;
};

}  // namespace lockstep::pubsub::grpc_client
