#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
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

  // Whether an exactly-once subscription has refused an id for good.
  bool Refused(const std::string& id) const;
};

// Acknowledge and ModifyAckDeadline of one subscription, once each. The answer never comes on the
// caller's thread.
class AckRpc {
 public:
  using Done = std::function<void(AckAnswer)>;

  virtual ~AckRpc() = default;
  // A new deadline for the messages, 0 = they are released; without one they are acknowledged.
  // REQUIRES: the ids fit in one request, see AckRequestSize.
  virtual void Send(std::vector<std::string> ids, std::optional<int> deadline_seconds,
                    Millis timeout, Done done) = 0;
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

// The ids, in requests within the limit.
std::vector<std::vector<std::string>> SplitIntoRequests(std::vector<std::string> ids);

// On the first channel, always: a key's acks must not overtake each other.
class GrpcAckRpc : public AckRpc {
 public:
  GrpcAckRpc(std::shared_ptr<Client> client, std::string subscription);

  void Send(std::vector<std::string> ids, std::optional<int> deadline_seconds, Millis timeout,
            Done done) override;

  // Cancels what is under way and waits for it.
  void Close() { calls_.Close(); }

 private:
  template <typename Request, typename Start>
  void Run(const Start& start, Request request, std::vector<std::string> ids, Millis timeout,
           Done done);

  const std::shared_ptr<Client> client_;
  const std::string subscription_;
  google::pubsub::v1::Subscriber::Stub stub_;
  UnaryCalls calls_;
};

}  // namespace lockstep::pubsub::grpc_client
