#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "platform/clock.h"
#include "pubsub/grpc/channel/channel.h"
#include "pubsub/grpc/channel/unary_calls.h"

namespace lockstep::pubsub::grpc_client {

// One answer to one request about ack ids.
struct AckAnswer {
  absl::Status status;
  std::vector<std::string> ids;                 // those of the request, given back
  std::map<std::string, std::string> failures;  // exactly-once: id -> reason
};

// Acknowledge and ModifyAckDeadline of one subscription, once each. The answer never comes on the
// caller's thread.
class AckRpc {
 public:
  using Done = std::function<void(AckAnswer)>;

  virtual ~AckRpc() = default;
  // REQUIRES: the ids fit in one request, see FitsRequest.
  virtual void Acknowledge(std::vector<std::string> ids, Millis timeout, Done done) = 0;
  virtual void ModifyDeadline(std::vector<std::string> ids, int seconds, Millis timeout,
                              Done done) = 0;
};

// Counts ids into a request until the limit of 512 KiB.
class AckRequestSize {
 public:
  // False when the id belongs in the next request.
  bool Add(const std::string& id);

 private:
  int64_t bytes_ = 1024;  // the subscription's name and what surrounds it
  bool empty_ = true;
};

// On the first channel, always: a key's acks must not overtake each other.
class GrpcAckRpc : public AckRpc {
 public:
  GrpcAckRpc(std::shared_ptr<Client> client, std::string subscription);

  void Acknowledge(std::vector<std::string> ids, Millis timeout, Done done) override;
  void ModifyDeadline(std::vector<std::string> ids, int seconds, Millis timeout,
                      Done done) override;

  // Cancels what is under way and waits for it.
  void Close();

 private:
  const std::shared_ptr<Client> client_;
  const std::string subscription_;
  const std::unique_ptr<google::pubsub::v1::Subscriber::Stub> stub_;
  UnaryCalls calls_;
};

}  // namespace lockstep::pubsub::grpc_client
