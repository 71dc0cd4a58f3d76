#include "pubsub/google_cloud/subscription_probe.h"

#include <utility>

#include "platform/status.h"
#include "pubsub/grpc/channel/status.h"

namespace lockstep::pubsub::google_cloud {
namespace {

namespace v1 = google::pubsub::v1;

constexpr Millis kWhileWell{5'000};
constexpr Millis kWhileIll{500};
constexpr Millis kTimeout{5'000};

SubscriptionProbe::Answer Judge(absl::Status status, const v1::Subscription& subscription) {
  // Who may consume need not be allowed to look.
  if (status.code() == absl::StatusCode::kPermissionDenied) return {absl::OkStatus(), true};
  if (status.ok() && subscription.detached()) {
    status = FailedPrecondition("subscription {} is detached from its topic", subscription.name());
  }
  return {std::move(status), subscription.enable_exactly_once_delivery()};
}

}  // namespace

SubscriptionProbe::SubscriptionProbe(std::shared_ptr<grpc_client::Client> client,
                                     std::string subscription, Report report)
    : client_(std::move(client)),
      subscription_(std::move(subscription)),
      report_(std::move(report)),
      stub_(v1::Subscriber::NewStub(client_->channel(0))) {}

SubscriptionProbe::~SubscriptionProbe() { Stop(); }

void SubscriptionProbe::Start() {
  {
    std::scoped_lock lock(mu_);
    stopped_ = false;
  }
  Schedule(Millis(0));
}

void SubscriptionProbe::Stop() {
  grpc_client::Timers::Id timer = 0;
  {
    std::scoped_lock lock(mu_);
    stopped_ = true;
    timer = timer_;
  }
  client_->timers.Cancel(timer);  // and waits for it if it is asking right now
  calls_.CancelAll();
  calls_.Wait();
}

void SubscriptionProbe::Hurry() { Schedule(kWhileIll); }

void SubscriptionProbe::Ask() {
  {
    std::scoped_lock lock(mu_);
    if (stopped_ || std::exchange(asking_, true)) return;
  }
  auto request = std::make_shared<v1::GetSubscriptionRequest>();
  request->set_subscription(subscription_);
  calls_.Run<v1::Subscription>(
      [this](auto* context, auto* sent, auto* response, auto callback) {
        stub_->async()->GetSubscription(context, sent, response, std::move(callback));
      },
      std::move(request), kTimeout,
      [this](const grpc::Status& status, const v1::Subscription& subscription) {
        OnAnswer(Judge(grpc_client::FromGrpc(status, client_->address), subscription));
      });
}

void SubscriptionProbe::OnAnswer(const Answer& answer) {
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

void SubscriptionProbe::Schedule(Millis delay) {
  grpc_client::Timers::Id before = 0;
  {
    std::scoped_lock lock(mu_);
    if (stopped_) return;
    if (asking_) {
      hurry_ = true;
      return;
    }
    before = std::exchange(timer_, client_->timers.After(delay, [this] { Ask(); }));
  }
  if (before != 0) client_->timers.Cancel(before);
}

}  // namespace lockstep::pubsub::google_cloud
