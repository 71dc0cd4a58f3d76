#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "pubsub/message.h"

namespace lockstep::pubsub {

struct PublisherOptions {
  Millis timeout{30'000};          // for one message, retries of passing faults included
  int max_requests_in_flight = 8;  // over all topics and keys
};

// The sending half of the port. Safe from any thread.
//
// Messages of one ordering key in a call go out in their order, at most one request per key in
// flight. When one fails, those of its key behind it fail too, with ABORTED. Calls know nothing of
// each other: whoever sends a key's messages in two calls keeps their order by waiting in between.
class Publisher {
 public:
  // One result per message, in their order. Runs exactly once, on a transport thread: it may
  // enqueue, it must not wait.
  using Done = std::function<void(std::vector<absl::StatusOr<MessageId>>)>;

  virtual ~Publisher() = default;  // fails what is still under way with CANCELLED, then returns

  // `topic` is a full name, projects/P/topics/T. Split into as many requests as the limits demand.
  // A request that the server refuses as a whole fails each of its messages with that status.
  // REQUIRES: no other call with a message of the same topic and ordering key is under way; one is
  // over when its Done is called.
  virtual void Publish(const std::string& topic, std::vector<Message> messages, Done done) = 0;

  // Another max_requests_in_flight, from the next request on.
  virtual void SetMaxRequests(int requests) = 0;
};

}  // namespace lockstep::pubsub
