#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/status.h"
#include "pubsub/grpc/channel/status.h"
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

  PublishRetries(Rpc rpc, Timers& timers) : rpc_(std::move(rpc)), timer_(timers) {}

  void Send(std::shared_ptr<const PublishCalls::Request> request, PublishCalls::Answer answer) {
    Try(std::make_shared<Sending>(Sending{std::move(request), std::move(answer)}));
  }

  // Ends what waits for its next try, and tries nothing again.
  void Close() {
    std::multimap<SteadyTime, SendingPtr> resting;
    {
      std::scoped_lock lock(mu_);
      closed_ = true;
      resting.swap(resting_);
    }
    timer_.Cancel();
    for (const auto& [time, sending] : resting) {
      Fail(*sending, absl::CancelledError("the publisher was closed"));
    }
  }

 private:
  // One try; a server that hangs must not eat the whole timeout.
  static constexpr Millis kMaxAttempt{15'000};
  static constexpr RetryPolicy kPolicy = WithoutEnd(Millis(50), Millis(2'000));

  struct Sending {
    std::shared_ptr<const PublishCalls::Request> request;
    PublishCalls::Answer answer;
    int attempts = 0;
  };
  using SendingPtr = std::shared_ptr<Sending>;  // shared with the RPC's answer

  void Try(const SendingPtr& sending) {
    const auto left = std::chrono::duration_cast<Millis>(sending->request->deadline -
                                                         std::chrono::steady_clock::now());
    ++sending->attempts;
    rpc_(*sending->request, std::clamp(left, Millis(1), kMaxAttempt),
         [this, sending](const absl::Status& status, std::vector<std::string> ids) {
           OnAnswer(sending, status, std::move(ids));
         });
  }

  void OnAnswer(const SendingPtr& sending, absl::Status status, std::vector<std::string> ids) {
    const size_t count = sending->request->messages.size();
    if (status.ok() && ids.size() != count) {
      status = Internal("the server gave {} ids for {} messages", ids.size(), count);
    }
    if (status.ok()) {
      PublishCalls::Results results;
      results.reserve(count);
      for (std::string& id : ids) results.emplace_back(MessageId(std::move(id)));
      return sending->answer(std::move(results));
    }
    if (MayPass(status.code())) {
      std::scoped_lock lock(mu_);
      const SteadyTime next =
          std::chrono::steady_clock::now() + kPolicy.Delay(sending->attempts, random_());
      if (!closed_ && next < sending->request->deadline) {
        resting_.emplace(next, sending);
        return SetTimer();
      }
    }
    Fail(*sending, status);
  }

  void SetTimer() {
    if (resting_.empty()) return;
    const auto rest = resting_.begin()->first - std::chrono::steady_clock::now();
    timer_.Set(std::chrono::ceil<Millis>(rest), [this] { TryAgain(); });
  }

  void TryAgain() {
    std::vector<SendingPtr> due;
    {
      std::scoped_lock lock(mu_);
      const auto end = resting_.upper_bound(std::chrono::steady_clock::now());
      for (auto next = resting_.begin(); next != end; next = resting_.erase(next)) {
        due.push_back(std::move(next->second));
      }
      SetTimer();
    }
    for (const SendingPtr& sending : due) Try(sending);
  }

  static void Fail(const Sending& sending, const absl::Status& status) {
    sending.answer(PublishCalls::Results(sending.request->messages.size(), status));
  }

  const Rpc rpc_;

  std::mutex mu_;
  Backoff::Random random_ = Backoff::DefaultRandom();
  std::multimap<SteadyTime, SendingPtr> resting_;  // by the time of their next try
  Timer timer_;                                    // for the first of them
  bool closed_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
