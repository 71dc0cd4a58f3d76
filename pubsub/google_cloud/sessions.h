#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "google/cloud/future.h"
#include "google/cloud/pubsub/subscriber.h"
#include "platform/clock.h"
#include "platform/status.h"
#include "pubsub/google_cloud/library.h"
#include "pubsub/google_cloud/worker.h"

namespace lockstep::pubsub::google_cloud {

// The library's sessions: a stream each, which it reopens by itself until an error that it takes
// for permanent. A session ends only when every handler that it gave out is used or gone. Belongs
// to the worker, but for AwaitEnd.
class Sessions {
 public:
  using Message = google::cloud::pubsub::Message;
  using Handler = google::cloud::pubsub::ExactlyOnceAckHandler;
  struct Events {  // on the worker
    std::function<void(Message, Handler)> on_message;
    std::function<void(const absl::Status&)> on_end;  // not after Cancel
  };

  Sessions(google::cloud::pubsub::Subscriber subscriber, int count, Worker& worker, Events events)
      : subscriber_(std::move(subscriber)),
        worker_(worker),
        events_(std::move(events)),
        sessions_(static_cast<size_t>(count)) {}

  // Starts those that don't run; true if all of them did before.
  bool StartMissing() {
    bool all = true;
    for (size_t i = 0; i < sessions_.size(); ++i) {
      if (sessions_[i].has_value() || cancelled_) continue;
      all = false;
      started_ = true;
      Start(i);
    }
    return all;
  }

  void Cancel() {
    cancelled_ = true;
    for (auto& session : sessions_) {
      if (session.has_value()) session->cancel();
    }
  }

  bool started() const { return started_; }

  // After Cancel. False if they are still there.
  bool AwaitEnd(Millis at_most) {
    std::unique_lock lock(mu_);
    return ended_.wait_for(lock, at_most, [this] { return open_ == 0; });
  }

 private:
  void Start(size_t index) {
    {
      std::scoped_lock lock(mu_);
      ++open_;
    }
    const auto on_message = [this](Message message, Handler handler) {
      // Shared, for a job must be copyable.
      auto both =
          std::make_shared<std::pair<Message, Handler>>(std::move(message), std::move(handler));
      worker_.Post(
          [this, both] { events_.on_message(std::move(both->first), std::move(both->second)); });
    };
    sessions_[index] =
        subscriber_.Subscribe(google::cloud::pubsub::ExactlyOnceApplicationCallback(on_message))
            .then([this, index](google::cloud::future<google::cloud::Status> status) {
              worker_.Post([this, index, end = FromCloud(status.get())] { OnEnd(index, end); });
            });
  }

  void OnEnd(size_t index, const absl::Status& status) {
    if (!cancelled_) {
      sessions_[index].reset();
      events_.on_end(status.ok() ? Unavailable("the session ended") : status);
    }
    std::scoped_lock lock(mu_);
    if (--open_ == 0) ended_.notify_all();
  }

  google::cloud::pubsub::Subscriber subscriber_;
  Worker& worker_;
  const Events events_;
  std::vector<std::optional<google::cloud::future<void>>> sessions_;
  std::atomic<bool> started_ = false;
  bool cancelled_ = false;

  std::mutex mu_;
  std::condition_variable ended_;
  int open_ = 0;
};

}  // namespace lockstep::pubsub::google_cloud
