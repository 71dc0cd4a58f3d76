#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "platform/status.h"
#include "pubsub/grpc/channel/channel.h"
#include "pubsub/grpc/channel/status.h"
#include "pubsub/grpc/channel/unary_calls.h"

namespace lockstep::pubsub::google_cloud {

// Asks the server now and then whether it is there and has the subscription: the library neither
// says that a stream is up nor that it keeps trying in vain. Works on threads of gRPC and of the
// timers; Stop ends it, and no report comes afterwards.
class SubscriptionProbe {
 public:
  struct Answer {
    absl::Status state;
    bool exactly_once = false;
  };
  using Report = std::function<void(const Answer&)>;

  SubscriptionProbe(std::shared_ptr<grpc_client::Client> client, std::string subscription,
                    Report report)
      : client_(std::move(client)),
        subscription_(std::move(subscription)),
        report_(std::move(report)),
        stub_(client_->channel(0)),
        timer_(client_->timers) {}
  ~SubscriptionProbe() { Stop(); }

  void Start() {
    {
      std::scoped_lock lock(mu_);
      stopped_ = false;
    }
    Schedule(Millis(0));
  }

  // Asks again soon: something went wrong.
  void Hurry() { Schedule(kWhileIll); }

  void Stop() {
    {
      std::scoped_lock lock(mu_);
      stopped_ = true;
    }
    timer_.Cancel();  // and waits for it if it is asking right now
    calls_.Close();
  }

 private:
  using Subscription = google::pubsub::v1::Subscription;
  static constexpr Millis kWhileWell{5'000};
  static constexpr Millis kWhileIll{500};
  static constexpr Millis kTimeout{5'000};

  void Schedule(Millis delay) {
    std::scoped_lock lock(mu_);
    if (stopped_) return;
    if (asking_) {
      hurry_ = true;
    } else {
      timer_.Set(delay, [this] { Ask(); });
    }
  }

  void Ask() {
    {
      std::scoped_lock lock(mu_);
      if (stopped_ || std::exchange(asking_, true)) return;
    }
    auto request = std::make_shared<google::pubsub::v1::GetSubscriptionRequest>();
    request->set_subscription(subscription_);
    calls_.Run<Subscription>(
        [this](auto* context, auto* sent, auto* response, auto callback) {
          stub_.async()->GetSubscription(context, sent, response, std::move(callback));
        },
        std::move(request), kTimeout,
        [this](const grpc::Status& status, const Subscription& subscription) {
          OnAnswer(Judge(grpc_client::FromGrpc(status, client_->address), subscription));
        });
  }

  static Answer Judge(absl::Status status, const Subscription& subscription) {
    // Who may consume need not be allowed to look.
    if (status.code() == absl::StatusCode::kPermissionDenied) return {absl::OkStatus(), true};
    if (status.ok() && subscription.detached()) {
      status =
          FailedPrecondition("subscription {} is detached from its topic", subscription.name());
    }
    return {std::move(status), subscription.enable_exactly_once_delivery()};
  }

  void OnAnswer(const Answer& answer) {
    bool soon = !answer.state.ok();
    {
      std::scoped_lock lock(mu_);
      if (stopped_) return;
      asking_ = false;
      soon |= std::exchange(hurry_, false);
    }
    report_(answer);
    Schedule(soon ? kWhileIll : kWhileWell);
  }

  const std::shared_ptr<grpc_client::Client> client_;
  const std::string subscription_;
  const Report report_;
  google::pubsub::v1::Subscriber::Stub stub_;

  std::mutex mu_;
  grpc_client::Timer timer_;
  bool asking_ = false;
  bool hurry_ = false;
  bool stopped_ = true;

  grpc_client::UnaryCalls calls_;
};

}  // namespace lockstep::pubsub::google_cloud
