#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/retry_policy.h"
#include "pubsub/grpc/channel/timers.h"
#include "pubsub/publish_calls.h"

namespace lockstep::pubsub::grpc_client {

// Sends a request again, as it is, after a fault that may pass, until its deadline. Safe from any
// thread; answers come on the threads of the RPC, or of whoever calls Close. Close ends it.
class PublishRetries {
 public:
  // Sends a request once. The answer must not come on the caller's thread.
  using Done = std::function<void(absl::Status, std::vector<std::string> message_ids)>;
  using Rpc = std::function<void(const PublishCalls::Request&, Millis timeout, Done)>;

  PublishRetries(Rpc rpc, Timers& timers) : rpc_(std::move(rpc)), timers_(timers) {}

  void Send(std::shared_ptr<const PublishCalls::Request> request, PublishCalls::Answer answer);

  // Ends what waits for its next try, and tries nothing again.
  void Close();

 private:
  struct Sending {
    std::shared_ptr<const PublishCalls::Request> request;
    PublishCalls::Answer answer;
    int attempts = 0;
    Timers::Id timer = 0;
  };
  using SendingPtr = std::shared_ptr<Sending>;  // shared with the RPC's answer and the timer

  void Try(const SendingPtr& sending);
  void OnAnswer(const SendingPtr& sending, absl::Status status, std::vector<std::string> ids);
  void TryAgain(const SendingPtr& sending);
  static void Fail(const Sending& sending, const absl::Status& status);

  const Rpc rpc_;
  Timers& timers_;

  std::mutex mu_;
  Backoff::Random random_ = Backoff::DefaultRandom();
  std::set<SendingPtr> resting_;  // wait for their next try
  Timers::Id fired_ = 0;          // of ours the last: its function may still be at work
  bool closed_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
