#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "google/cloud/pubsub/exactly_once_ack_handler.h"
#include "platform/clock.h"
#include "pubsub/message.h"

namespace lockstep::pubsub::google_cloud {

// A message as the library handed it over: its handler is what acks it. The library extends its
// lease for as long as the handler lives; dropping the handler gives the message back.
struct Held {
  MessageId id;
  std::string key;
  int64_t bytes = 0;
  SteadyTime since;
  bool warned = false;
  google::cloud::pubsub::ExactlyOnceAckHandler handler;
};

// What the user has in hand, by token, and how much of it there may be. Belongs to the worker.
class Hands {
 public:
  struct Overdue {
    std::vector<std::pair<AckToken, Held>> lapsed;
    int warned = 0;  // half of the time has passed
  };

  Hands(int64_t max_messages, int64_t max_bytes);

  // Whatever its size, one message always fits.
  bool HasRoomFor(int64_t bytes) const;
  AckToken Put(Held held);
  std::optional<Held> Take(const AckToken& token);
  // Takes out what has been held for longer than `most`.
  Overdue TakeOverdue(SteadyTime now, Millis most);
  std::vector<Held> TakeAll();

 private:
  const int64_t max_messages_;
  const int64_t max_bytes_;
  std::unordered_map<AckToken, Held> held_;
  int64_t bytes_ = 0;
  uint64_t last_token_ = 0;
};

}  // namespace lockstep::pubsub::google_cloud
