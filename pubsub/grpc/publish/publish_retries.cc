#include "pubsub/grpc/publish/publish_retries.h"

#include <algorithm>
#include <utility>

#include "platform/status.h"
#include "pubsub/grpc/channel/status.h"

namespace lockstep::pubsub::grpc_client {
namespace {

// One try; a server that hangs must not eat the whole timeout.
constexpr Millis kMaxAttempt{15'000};
constexpr RetryPolicy kPolicy{.max_attempts = 0,
                              .base = Millis(50),
                              .factor = 2,
                              .cap = Millis(2'000),
                              .jitter = RetryPolicy::Jitter::kProportional,
                              .jitter_amount = 0.3};

}  // namespace

void PublishRetries::Send(std::shared_ptr<const PublishCalls::Request> request,
                          PublishCalls::Answer answer) {
  Try(std::make_shared<Sending>(Sending{std::move(request), std::move(answer)}));
}

void PublishRetries::Try(const SendingPtr& sending) {
  const auto left = std::chrono::duration_cast<Millis>(sending->request->deadline -
                                                       std::chrono::steady_clock::now());
  ++sending->attempts;
  rpc_(*sending->request, std::clamp(left, Millis(1), kMaxAttempt),
       [this, sending](absl::Status status, std::vector<std::string> ids) {
         OnAnswer(sending, std::move(status), std::move(ids));
       });
}

void PublishRetries::OnAnswer(const SendingPtr& sending, absl::Status status,
                              std::vector<std::string> ids) {
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
    const Millis delay = kPolicy.Delay(sending->attempts, random_());
    if (!closed_ && std::chrono::steady_clock::now() + delay < sending->request->deadline) {
      resting_.insert(sending);
      sending->timer = timers_.After(delay, [this, sending] { TryAgain(sending); });
      return;
    }
  }
  Fail(*sending, status);
}

void PublishRetries::TryAgain(const SendingPtr& sending) {
  {
    std::scoped_lock lock(mu_);
    if (resting_.erase(sending) == 0) return;  // closed meanwhile
    fired_ = sending->timer;
  }
  Try(sending);
}

void PublishRetries::Fail(const Sending& sending, const absl::Status& status) {
  sending.answer(PublishCalls::Results(sending.request->messages.size(), status));
}

void PublishRetries::Close() {
  std::set<SendingPtr> resting;
  Timers::Id fired = 0;
  {
    std::scoped_lock lock(mu_);
    closed_ = true;
    resting.swap(resting_);
    fired = fired_;
  }
  for (const SendingPtr& sending : resting) {
    timers_.Cancel(sending->timer);
    Fail(*sending, absl::CancelledError("the publisher was closed"));
  }
  timers_.Cancel(fired);
}

}  // namespace lockstep::pubsub::grpc_client
