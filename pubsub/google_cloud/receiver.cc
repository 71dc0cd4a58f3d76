#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "google/cloud/grpc_options.h"
#include "google/cloud/pubsub/exactly_once_ack_handler.h"
#include "google/cloud/pubsub/message.h"
#include "google/cloud/pubsub/options.h"
#include "google/cloud/pubsub/subscriber_connection.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/google_cloud/ack_calls.h"
#include "pubsub/google_cloud/hands.h"
#include "pubsub/google_cloud/key_fence.h"
#include "pubsub/google_cloud/library.h"
#include "pubsub/google_cloud/sessions.h"
#include "pubsub/google_cloud/subscription_probe.h"
#include "pubsub/google_cloud/worker.h"
#include "pubsub/stream_limits.h"
#include "pubsub/user_call.h"

namespace lockstep::pubsub::google_cloud {
namespace {

namespace gc = ::google::cloud;
using std::chrono::seconds;

constexpr Millis kTick{50};
constexpr Millis kSessionEnd{5'000};
// What the library holds itself it gives back when a session is cancelled, and does not say when
// that is done.
constexpr Millis kGiveBackTime{250};
// The library must not be the first to give up on a lease: close to its limit it can freeze (its
// issue 16248). Its clock runs from the delivery to itself, ours from the delivery to the sink.
constexpr seconds kLeaseSlack{24 * 3600};

Delivery FromCloud(gc::pubsub::Message message, int attempt) {
  Delivery delivery;
  delivery.message_id = MessageId(message.message_id());
  delivery.publish_time = message.publish_time();
  delivery.delivery_attempt = attempt;
  delivery.message.ordering_key = message.ordering_key();
  for (const auto& [name, value] : message.attributes()) delivery.message.attributes[name] = value;
  delivery.message.data = std::move(message).data();
  return delivery;
}

// Everything happens on the worker; the library's callbacks only post to it.
//
//   Sessions ──> KeyFence ──> (room?) ──> Hands ──> the user's sink
//   Acknowledge, Release ──> Hands ──> the library ──> AckCalls ──> the user's callback
//
// The library hands over one message per ordering key; the next comes when that one is acked. So a
// batch is as wide as there are keys, and never deep.
class CloudReceiver final : public Receiver {
 public:
  CloudReceiver(const ReceiverOptions& options, DeliverySink& sink,
                std::shared_ptr<Library> library)
      : options_(options),
        sink_(sink),
        library_(std::move(library)),
        calls_(options.ack_timeout, worker_),
        probe_(library_->client, options.subscription,
               [this](const SubscriptionProbe::Answer& answer) {
                 worker_.Post([this, answer] { OnProbe(answer); });
               }),
        hands_(options.max_outstanding_messages, options.max_outstanding_bytes) {}

  ~CloudReceiver() override { Stop(); }

  absl::Status Start() override {
    ASSIGN_OR_RETURN(const auto subscription,
                     ParseName<gc::pubsub::Subscription>(options_.subscription, "subscription"));
    std::scoped_lock lock(mu_);
    if (life_ != Life::kNew) {
      return FailedPrecondition("the receiver was started or stopped before");
    }
    life_ = Life::kRunning;
    sessions_ = std::make_unique<Sessions>(
        MakeSubscriber(subscription), std::max(1, options_.streams), worker_,
        Sessions::Events{.on_message =
                             [this](gc::pubsub::Message message, Handler handler) {
                               OnMessage(std::move(message), std::move(handler));
                             },
                         .on_end = [this](const absl::Status& status) { OnSessionEnd(status); }});
    worker_.Post([this] { ScheduleTick(); });
    probe_.Start();
    return absl::OkStatus();
  }

  void StopPulling() override {
    // The library can't half-close: what comes from now on is parked, unseen, until Stop.
    worker_.Post([this] {
      draining_ = true;
      for (Arrived& arrived : arrived_) parked_.push_back(std::move(arrived.held.handler));
      arrived_.clear();
    });
  }

  void Stop() override {
    std::call_once(stopped_, [this] {
      bool started = false;
      {
        std::scoped_lock lock(mu_);
        started = std::exchange(life_, Life::kStopped) == Life::kRunning;
      }
      StopPulling();
      probe_.Stop();
      if (started) {
        calls_.Wait(options_.ack_timeout);
        worker_.Run([this] { GiveBackAll(); });
        if (!sessions_->AwaitEnd(kSessionEnd)) {
          log::Warning("a session did not end in time", {{"subscription", options_.subscription}});
        }
        calls_.Wait(options_.ack_timeout);
        if (sessions_->started()) std::this_thread::sleep_for(kGiveBackTime);
      }
      worker_.Stop();
    });
  }

  void Acknowledge(std::vector<AckToken> tokens, Done done) override {
    AckOrRelease(std::move(tokens), std::move(done), true);
  }

  void Release(std::vector<AckToken> tokens, Done done) override {
    AckOrRelease(std::move(tokens), std::move(done), false);
  }

 private:
  using Handler = gc::pubsub::ExactlyOnceAckHandler;
  enum class Life { kNew, kRunning, kStopped };
  struct Arrived {
    Delivery delivery;
    Held held;
  };
  // Waits to be given back: for its pause, and for what is given back before it.
  struct Returning {
    std::string key;
    SteadyTime due;
    Handler handler;
  };

  gc::pubsub::Subscriber MakeSubscriber(const gc::pubsub::Subscription& subscription) const {
    const int64_t messages = PerStream(options_.max_outstanding_messages, options_.streams);
    const seconds lease = StreamDeadline(options_.ack_deadline);
    gc::Options options = library_->options;
    options
        .set<gc::GrpcCompletionQueueOption>(worker_.cq())
        // Handlers are held until the commit: as many as there may be messages in hand.
        .set<gc::pubsub::MaxConcurrencyOption>(static_cast<size_t>(messages))
        .set<gc::pubsub::MaxOutstandingMessagesOption>(messages)
        .set<gc::pubsub::MaxOutstandingBytesOption>(
            PerStream(options_.max_outstanding_bytes, options_.streams))
        // Unset, leases are not extended at all.
        .set<gc::pubsub::MaxDeadlineTimeOption>(std::chrono::ceil<seconds>(options_.max_extension) +
                                                kLeaseSlack)
        .set<gc::pubsub::MaxDeadlineExtensionOption>(lease)
        .set<gc::pubsub::MinDeadlineExtensionOption>(lease)
        .set<gc::pubsub::RetryPolicyOption>(PatientRetryPolicy(Millis(0)));
    return gc::pubsub::Subscriber(
        gc::pubsub::MakeSubscriberConnection(subscription, std::move(options)));
  }

  void AckOrRelease(std::vector<AckToken> tokens, Done done, bool ack) {
    const auto call = calls_.Open(tokens.size(), std::move(done));
    auto work = [this, call, ack, tokens = std::move(tokens)] {
      for (size_t i = 0; i < tokens.size(); ++i) {
        std::optional<Held> held = hands_.Take(tokens[i]);
        if (!held.has_value()) {
          // As the server would say: an ack that comes too late fails with exactly-once delivery,
          // and has no effect without it.
          calls_.Finish(call, i,
                        exactly_once_ ? FailedPrecondition("the message is no longer in hand")
                                      : absl::OkStatus());
        } else {
          calls_.Follow(call, i, ack ? std::move(held->handler).ack() : GiveBack(*std::move(held)));
        }
      }
      calls_.Conclude(call);
      HandOverSoon();
    };
    if (worker_.Post(std::move(work))) return;
    library_->client->timers.Now([call] {
      std::fill(call->results.begin(), call->results.end(),
                absl::CancelledError("the receiver was stopped"));
      call->Report("an acknowledgement callback");
    });
  }

  // The rest runs on the worker.

  void OnMessage(gc::pubsub::Message message, Handler handler) {
    if (draining_) return parked_.push_back(std::move(handler));
    const SteadyTime now = std::chrono::steady_clock::now();
    const int attempt = handler.delivery_attempt();
    Delivery delivery = FromCloud(std::move(message), attempt);
    const std::string& key = delivery.message.ordering_key;
    if (const auto pause = fence_.Arrived(key, delivery.message_id, now); pause.has_value()) {
      returning_.push_back({key, now + *pause, std::move(handler)});
      return ReturnDue();
    }
    Held held{.id = delivery.message_id,
              .key = key,
              .bytes = delivery.message.ByteSize(),
              .since = now,
              .handler = std::move(handler)};
    arrived_.push_back({std::move(delivery), std::move(held)});
    HandOverSoon();
  }

  // Posted, so that what the library has queued for us meanwhile makes one batch.
  void HandOverSoon() {
    if (arrived_.empty() || std::exchange(handing_over_, true)) return;
    worker_.Post([this] { HandOver(); });
  }

  void HandOver() {
    handing_over_ = false;
    std::vector<Delivery> batch;
    while (!arrived_.empty() && hands_.HasRoomFor(arrived_.front().held.bytes)) {
      Arrived& arrived = arrived_.front();
      arrived.delivery.token = hands_.Put(std::move(arrived.held));
      batch.push_back(std::move(arrived.delivery));
      arrived_.pop_front();
    }
    if (batch.empty()) return;
    Fenced("the sink's OnDeliveries", [&] { sink_.OnDeliveries(std::move(batch)); });
  }

  // The library hands over the key's next message at once: from now on the fence looks at them.
  gc::future<gc::Status> GiveBack(Held held) {
    fence_.Raise(held.key, held.id, std::chrono::steady_clock::now());
    return Nack(held.key, std::move(held.handler));
  }

  gc::future<gc::Status> Nack(const std::string& key, Handler handler) {
    if (key.empty()) return std::move(handler).nack();
    ++nacking_[key];
    return std::move(handler).nack().then([this, key](gc::future<gc::Status> answer) {
      worker_.Post([this, key] {
        if (--nacking_[key] == 0) nacking_.erase(key);
        ReturnDue();
      });
      return answer.get();
    });
  }

  // One at a time per key, each after the server has taken the one before: in flight together, they
  // could arrive in another order, and the server would then send them in that order.
  void ReturnDue() {
    const SteadyTime now = std::chrono::steady_clock::now();
    for (size_t i = 0; i < returning_.size();) {
      if (returning_[i].due > now || nacking_.contains(returning_[i].key)) {
        ++i;
        continue;
      }
      Returning returning = std::move(returning_[i]);
      returning_.erase(returning_.begin() + static_cast<ptrdiff_t>(i));
      Nack(returning.key, std::move(returning.handler));
    }
  }

  void OnProbe(const SubscriptionProbe::Answer& answer) {
    if (draining_) return;
    if (!answer.state.ok()) return Tell(answer.state);
    exactly_once_ = answer.exactly_once;
    const bool all_ran = sessions_->StartMissing();
    if (suspicious_ && !all_ran) return probe_.Hurry();
    suspicious_ = false;
    Tell(absl::OkStatus());
  }

  void OnSessionEnd(const absl::Status& status) {
    suspicious_ = true;
    Tell(status);
    probe_.Hurry();
  }

  void Tell(const absl::Status& state) {
    if (draining_ || (told_.has_value() && told_->code() == state.code())) return;
    told_ = state;
    Fenced("the sink's OnStreamState", [&] { sink_.OnStreamState(state); });
  }

  void ScheduleTick() {
    worker_.cq().MakeRelativeTimer(kTick).then([this](auto timer) {
      if (!timer.get().ok()) return;  // we stop
      worker_.Post([this] {
        Tick();
        ScheduleTick();
      });
    });
  }

  void Tick() {
    const SteadyTime now = std::chrono::steady_clock::now();
    calls_.GiveUpOverdue(now);
    fence_.Sweep(now);
    if (!returning_.empty()) ReturnDue();
    DropLapsed(now);
  }

  void DropLapsed(SteadyTime now) {
    Hands::Overdue overdue = hands_.TakeOverdue(now, options_.max_extension);
    if (overdue.warned > 0) {
      log::Warning("messages have been in hand for half of max_extension",
                   {{"subscription", options_.subscription}, {"messages", overdue.warned}});
    }
    if (overdue.lapsed.empty()) return;
    std::vector<AckToken> tokens;
    for (auto& [token, held] : overdue.lapsed) {
      tokens.push_back(std::move(token));
      GiveBack(std::move(held));
    }
    Fenced("the sink's OnLeaseLost", [&] { sink_.OnLeaseLost(std::move(tokens)); });
    HandOverSoon();
  }

  // Cancelled first: a session that is not would answer each message that it gets back with the
  // next one.
  void GiveBackAll() {
    sessions_->Cancel();
    std::vector<Handler> left = std::exchange(parked_, {});
    for (Returning& returning : returning_) left.push_back(std::move(returning.handler));
    for (Held& held : hands_.TakeAll()) left.push_back(std::move(held.handler));
    returning_.clear();
    const auto call = calls_.Open(left.size(), [](const std::vector<absl::Status>&) {});
    for (size_t i = 0; i < left.size(); ++i) calls_.Follow(call, i, std::move(left[i]).nack());
    calls_.Conclude(call);
  }

  const ReceiverOptions options_;
  DeliverySink& sink_;
  const std::shared_ptr<Library> library_;
  Worker worker_{4};
  AckCalls calls_;
  SubscriptionProbe probe_;

  Hands hands_;
  KeyFence fence_;
  std::deque<Arrived> arrived_;
  std::vector<Handler> parked_;  // came while we drain; given back in the end
  std::vector<Returning> returning_;
  std::unordered_map<std::string, int> nacking_;  // keys with a nack under way
  std::unique_ptr<Sessions> sessions_;
  std::optional<absl::Status> told_;
  bool suspicious_ = false;   // a session ended: the next one must last before we say OK
  bool exactly_once_ = true;  // until we know better
  bool draining_ = false;
  bool handing_over_ = false;

  std::once_flag stopped_;
  std::mutex mu_;
  Life life_ = Life::kNew;
};

}  // namespace

std::unique_ptr<Receiver> MakeReceiver(const ReceiverOptions& options, DeliverySink& sink,
                                       std::shared_ptr<Library> library) {
  return std::make_unique<CloudReceiver>(options, sink, std::move(library));
}

}  // namespace lockstep::pubsub::google_cloud
