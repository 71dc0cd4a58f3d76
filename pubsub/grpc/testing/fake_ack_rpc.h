#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "pubsub/grpc/receive/ack_rpc.h"

namespace lockstep::pubsub::grpc_client {

// For tests: keeps the requests until the test answers them.
class FakeAckRpc : public AckRpc {
 public:
  struct Sent {
    std::vector<std::string> ids;
    int seconds = -1;  // -1 = an acknowledgement
    Done done;
  };

  void Send(std::vector<std::string> ids, std::optional<int> deadline_seconds, Millis,
            Done done) override {
    if (on_send) on_send();
    Keep({std::move(ids), deadline_seconds.value_or(-1), std::move(done)});
  }

  std::function<void()> on_send;

  size_t count() {
    std::scoped_lock lock(mu_);
    return sent_.size();
  }
  // Waits for the request with that index.
  Sent Get(size_t index) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return sent_.size() > index; });
    return sent_[index];
  }
  void Answer(size_t index, const absl::Status& status = absl::OkStatus(),
              std::map<std::string, std::string> failures = {}) {
    Sent sent = Get(index);
    {
      std::scoped_lock lock(mu_);
      sent_[index].done = nullptr;
    }
    if (sent.done) sent.done({status, std::move(sent.ids), std::move(failures)});
  }
  void FailOpen() {
    for (size_t i = 0; i < count(); ++i) Answer(i, absl::CancelledError());
  }

 private:
  void Keep(Sent sent) {
    std::scoped_lock lock(mu_);
    sent_.push_back(std::move(sent));
    changed_.notify_all();
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Sent> sent_;
};

}  // namespace lockstep::pubsub::grpc_client
