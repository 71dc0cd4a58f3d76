#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "emulator/core/journal.h"
#include "emulator/core/message.h"
#include "emulator/core/subscription.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "platform/clock.h"

namespace lockstep::emulator {

// One topic: gives messages their order, ids and times, hands them to its subscriptions, and keeps
// those that topic retention or a snapshot may still want back. Any thread may call it.
// Locks are taken topic first, then subscription.
class Topic {
 public:
  // `number`: no other topic has it. `next_id` numbers the messages of all topics. `journal` may be
  // null.
  Topic(const pb::Topic& config, uint64_t number, std::atomic<uint64_t>* next_id, Journal* journal,
        const Clock& clock);
  // Before anybody knows it: what it had when the process before ended.
  void Restore(uint64_t next_sequence, std::vector<MessagePtr> messages);
  uint64_t number() const { return number_; }

  pb::Topic Config() const;
  void SetConfig(const pb::Topic& config);
  // What messages must look like; nothing = anything.
  std::optional<pb::SchemaSettings> Schema() const;

  // Returns their ids. `wakes` are for the caller to wake.
  absl::StatusOr<std::vector<std::string>> Publish(std::vector<std::shared_ptr<Message>> messages,
                                                   Subscription::Wakes* wakes);

  // Adds the subscription that `make` makes; it gets everything from `first_sequence` on.
  using Make = std::function<std::shared_ptr<Subscription>(uint64_t first_sequence)>;
  std::shared_ptr<Subscription> Attach(const Make& make);
  void Detach(const Subscription* subscription);
  std::vector<std::shared_ptr<Subscription>> Subscriptions() const;

  // What its retention keeps for every subscription, in order, from this time on.
  std::vector<MessagePtr> Retained(WallTime from);
  // That and what is held, from this place on. REQUIRES: for one whose hold lives.
  std::vector<MessagePtr> Kept(uint64_t first_sequence);

  // While a hold lives, everything published after it is kept; or from a place in the past on.
  uint64_t Hold();
  void HoldFrom(uint64_t sequence);
  void Release(uint64_t hold);

 private:
  absl::Status Keep(const std::vector<MessagePtr>& messages);
  void Trim();
  bool IsRetained(const Message& message) const;  // by the topic's own retention

  const uint64_t number_;
  std::atomic<uint64_t>* const next_id_;
  Journal* const journal_;
  const Clock& clock_;

  mutable std::mutex mu_;
  pb::Topic config_;
  Millis retention_{0};
  uint64_t next_sequence_ = 1;
  WallTime last_time_;
  std::deque<MessagePtr> kept_;  // rising sequences
  std::multiset<uint64_t> holds_;
  std::vector<std::shared_ptr<Subscription>> subscriptions_;
};

}  // namespace lockstep::emulator
