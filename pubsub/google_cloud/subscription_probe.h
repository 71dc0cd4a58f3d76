#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "pubsub/grpc/channel/channel.h"
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
                    Report report);
  ~SubscriptionProbe();

  void Start();
  // Asks again soon: something went wrong.
  void Hurry();
  void Stop();

 private:
  void Ask();
  void OnAnswer(const Answer& answer);
  void Schedule(Millis delay);

  const std::shared_ptr<grpc_client::Client> client_;
  const std::string subscription_;
  const Report report_;
  const std::unique_ptr<google::pubsub::v1::Subscriber::Stub> stub_;

  std::mutex mu_;
  grpc_client::Timers::Id timer_ = 0;
  bool asking_ = false;
  bool hurry_ = false;
  bool stopped_ = true;

  grpc_client::UnaryCalls calls_;
};

}  // namespace lockstep::pubsub::google_cloud
