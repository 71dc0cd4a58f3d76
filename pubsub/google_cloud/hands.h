#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
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

  Hands(int64_t max_messages, int64_t max_bytes)
      : max_messages_(max_messages), max_bytes_(max_bytes) {}

  // Whatever its size, one message always fits.
  bool HasRoomFor(int64_t bytes) const {
    if (held_.empty()) return true;
    return static_cast<int64_t>(held_.size()) < max_messages_ && bytes_ + bytes <= max_bytes_;
  }

  AckToken Put(Held held) {
    AckToken token(std::to_string(++last_token_));
    bytes_ += held.bytes;
    held_.emplace(token, std::move(held));
    return token;
  }

  std::optional<Held> Take(const AckToken& token) {
    auto node = held_.extract(token);
    if (node.empty()) return std::nullopt;
    bytes_ -= node.mapped().bytes;
    return std::move(node.mapped());
  }

  // Takes out what has been held for longer than `most`.
  Overdue TakeOverdue(SteadyTime now, Millis most) {
    Overdue overdue;
    std::vector<AckToken> lapsed;
    for (auto& [token, held] : held_) {
      const auto age = now - held.since;
      if (age >= most) {
        lapsed.push_back(token);
      } else if (age >= most / 2 && !std::exchange(held.warned, true)) {
        ++overdue.warned;
      }
    }
    for (AckToken& token : lapsed) {
      Held held = *Take(token);
      overdue.lapsed.emplace_back(std::move(token), std::move(held));
    }
    // The oldest first: the order in which they should return.
    std::sort(overdue.lapsed.begin(), overdue.lapsed.end(),
              [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
    return overdue;
  }

  std::vector<Held> TakeAll() {
    std::vector<Held> all;
    all.reserve(held_.size());
    for (auto& [token, held] : std::exchange(held_, {})) all.push_back(std::move(held));
    bytes_ = 0;
    return all;
  }

 private:
  const int64_t max_messages_;
  const int64_t max_bytes_;
  std::unordered_map<AckToken, Held> held_;
  int64_t bytes_ = 0;
  uint64_t last_token_ = 0;
};

}  // namespace lockstep::pubsub::google_cloud
