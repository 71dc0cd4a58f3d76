#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "pubsub/message.h"

namespace lockstep::pubsub {

struct ReceiverOptions {
  std::string subscription;  // full name, projects/P/subscriptions/S
  std::string client_id;     // begins every stream's id, for those who look; no id is used twice
  int64_t max_outstanding_messages = 1024;
  int64_t max_outstanding_bytes = 64 << 20;
  Millis ack_deadline{60'000};        // of the stream; 10 s to 600 s
  Millis max_extension{60 * 60'000};  // leases are extended this long after the delivery
  int streams = 1;
  // How often a stream asks whether the server is still there; one that answers such questions and
  // then leaves one open for half as long is hung up on. 0 = never. (google-cloud-cpp has no such
  // thing.)
  Millis keepalive{30'000};
  // An ack that the server has not taken by then is given up (DEADLINE_EXCEEDED) and not sent
  // later: a late one could acknowledge what a Seek has brought back. Its message is released
  // instead (by our own transport; google-cloud-cpp can't nack what it has acked).
  Millis ack_timeout{5'000};
};

// Hears what a Receiver receives. Called on transport threads: it may enqueue, it must not wait.
class DeliverySink {
 public:
  virtual ~DeliverySink() = default;

  // Messages of one ordering key come in order, over all calls.
  virtual void OnDeliveries(std::vector<Delivery> deliveries) = 0;

  // These leases lapsed (max_extension passed, or the server said so): the messages will come
  // again, and so will every later one of their keys.
  virtual void OnLeaseLost(std::vector<AckToken> tokens) = 0;

  // OK after (re)connecting; otherwise why there is no stream now. The receiver keeps trying.
  virtual void OnStreamState(const absl::Status& state) = 0;
};

// The receiving half of the port: streams of one subscription, their leases and acks.
// Safe from any thread. Stop half-closes the streams, flushes the acks under way and returns; no
// call to the sink comes after it. What was neither acked nor released then is left to its
// deadline.
class Receiver : public Service {
 public:
  // One status per token, in their order; runs exactly once, on a transport thread. Without
  // exactly-once delivery OK means that the server took the request; with it, that the ack holds.
  // A permanent failure (the lease had lapsed) is FAILED_PRECONDITION.
  using Done = std::function<void(std::vector<absl::Status>)>;

  // Half-closes the streams: no new deliveries, while leases are kept and acks sent until Stop.
  // What arrives meanwhile is released unseen. Optional before Stop; idempotent.
  virtual void StopPulling() {}

  // After the commit, never before. Tokens of a key in the order of their deliveries.
  virtual void Acknowledge(std::vector<AckToken> tokens, Done done) = 0;

  // Gives messages back for redelivery, now. On an ordered subscription this brings back every
  // later message of the key too: release a key's whole queue, not a message in the middle.
  virtual void Release(std::vector<AckToken> tokens, Done done) = 0;
};

}  // namespace lockstep::pubsub
