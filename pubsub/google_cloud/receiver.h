#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "google/cloud/pubsub/exactly_once_ack_handler.h"
#include "google/cloud/pubsub/message.h"
#include "pubsub/google_cloud/ack_calls.h"
#include "pubsub/google_cloud/hands.h"
#include "pubsub/google_cloud/key_fence.h"
#include "pubsub/google_cloud/library.h"
#include "pubsub/google_cloud/sessions.h"
#include "pubsub/google_cloud/subscription_probe.h"
#include "pubsub/google_cloud/worker.h"
#include "pubsub/receiver.h"

namespace lockstep::pubsub::google_cloud {

// The port's Receiver. Everything happens on the worker; the library's callbacks only post to it.
//
//   Sessions ──> KeyFence ──> (room?) ──> Hands ──> the user's sink
//   Acknowledge, Release ──> Hands ──> the library ──> AckCalls ──> the user's callback
//
// The library hands over one message per ordering key; the next comes when that one is acked. So a
// batch is as wide as there are keys, and never deep.
class CloudReceiver : public Receiver {
 public:
  CloudReceiver(const ReceiverOptions& options, DeliverySink& sink,
                std::shared_ptr<Library> library);
  ~CloudReceiver() override;

  absl::Status Start() override;
  void StopPulling() override;
  void Stop() override;
  void Acknowledge(std::vector<AckToken> tokens, Done done) override;
  void Release(std::vector<AckToken> tokens, Done done) override;

 private:
  using Handler = google::cloud::pubsub::ExactlyOnceAckHandler;
  enum class Life { kNew, kRunning, kStopping, kStopped };
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

  google::cloud::pubsub::Subscriber MakeSubscriber(
      const google::cloud::pubsub::Subscription& subscription) const;
  void AckOrRelease(std::vector<AckToken> tokens, Done done, bool ack);

  // The rest runs on the worker.
  void OnMessage(google::cloud::pubsub::Message message, Handler handler);
  void HandOver();
  void HandOverSoon();
  google::cloud::future<google::cloud::Status> GiveBack(Held held);
  google::cloud::future<google::cloud::Status> Nack(const std::string& key, Handler handler);
  void ReturnDue();
  void OnProbe(const SubscriptionProbe::Answer& answer);
  void OnSessionEnd(const absl::Status& status);
  void Tell(const absl::Status& state);
  void ScheduleTick();
  void Tick();
  void DropLapsed(SteadyTime now);
  void Shut();

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

  std::mutex mu_;
  std::condition_variable stopped_;
  Life life_ = Life::kNew;
};

}  // namespace lockstep::pubsub::google_cloud
