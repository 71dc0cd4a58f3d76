#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "google/cloud/future.h"
#include "google/cloud/pubsub/subscriber.h"
#include "platform/clock.h"

namespace lockstep::pubsub::google_cloud {

// The library's sessions: a stream each, which it reopens by itself until an error that it takes
// for permanent. A session ends only when every handler that it gave out is used or gone. Belongs
// to the worker, but for AwaitEnd.
class Sessions {
 public:
  struct Events {
    std::function<void(google::cloud::pubsub::Message,
                       google::cloud::pubsub::ExactlyOnceAckHandler)>
        on_message;                                   // on the library's threads
    std::function<void(std::function<void()>)> post;  // to the worker
    std::function<void(const absl::Status&)> on_end;  // not after Cancel
  };

  Sessions(google::cloud::pubsub::Subscriber subscriber, int count, Events events);

  // Starts those that don't run; true if all of them did before.
  bool StartMissing();
  void Cancel();
  bool started() const { return started_; }
  // After Cancel. False if they are still there.
  bool AwaitEnd(Millis at_most);

 private:
  void OnEnd(size_t index, const absl::Status& status);

  google::cloud::pubsub::Subscriber subscriber_;
  const Events events_;
  std::vector<std::optional<google::cloud::future<void>>> sessions_;
  std::atomic<bool> started_ = false;
  bool cancelled_ = false;

  std::mutex mu_;
  std::condition_variable ended_;
  int open_ = 0;
};

}  // namespace lockstep::pubsub::google_cloud
