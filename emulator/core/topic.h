#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

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
  using Proto = google::pubsub::v1::Topic;

  // `next_id` numbers the messages of all topics.
  Topic(Proto config, std::atomic<uint64_t>* next_id, const Clock& clock);

  Proto Config() const;
  void SetConfig(const Proto& config);
  // What messages must look like; null = anything.
  std::shared_ptr<const google::pubsub::v1::SchemaSettings> Schema() const;

  // Returns their ids.
  std::vector<std::string> Publish(std::vector<std::shared_ptr<Message>> messages);

  // Adds the subscription that `make` makes; it gets everything from `first_sequence` on.
  using Make =
      std::function<std::shared_ptr<Subscription>(uint64_t first_sequence, Millis retention)>;
  std::shared_ptr<Subscription> Attach(const Make& make);
  void Detach(const Subscription* subscription);
  std::vector<std::shared_ptr<Subscription>> Subscriptions() const;

  // What is kept from `time` or from `sequence` on, in order.
  std::vector<MessagePtr> KeptSince(WallTime time);
  std::vector<MessagePtr> KeptFrom(uint64_t sequence);

  // While a hold lives, everything published after it is kept.
  uint64_t Hold();
  void Release(uint64_t hold);

 private:
  void Trim();

  std::atomic<uint64_t>* const next_id_;
  const Clock& clock_;

  mutable std::mutex mu_;
  Proto config_;
  Millis retention_{0};
  std::shared_ptr<const google::pubsub::v1::SchemaSettings> schema_;  // a copy, cheap to hand out
  uint64_t next_sequence_ = 1;
  WallTime last_time_;
  std::deque<MessagePtr> kept_;  // rising sequences
  std::multiset<uint64_t> holds_;
  std::vector<std::shared_ptr<Subscription>> subscriptions_;
};

}  // namespace lockstep::emulator
