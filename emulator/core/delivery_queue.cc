#include "emulator/core/delivery_queue.h"

#include <algorithm>
#include <utility>

namespace lockstep::emulator {
namespace {

// Of one key, before the next has its turn: a key with a long queue must not hold the others back.
constexpr size_t kMessagesInTurn = 20;

}  // namespace

DeliveryQueue::DeliveryQueue(DeliveryPolicy policy, uint64_t first_sequence,
                             std::function<bool()> can_dead_letter)
    : policy_(policy),
      can_dead_letter_(std::move(can_dead_letter)),
      log_(first_sequence),
      keys_(&log_) {
  log_.set_retain_acked(policy.retain_acked);
}

void DeliveryQueue::Append(MessagePtr message, bool wanted) {
  Entry& entry = log_.Append();
  if (!wanted) {
    entry.state = AckState::kAcked;
    return Tidy();
  }
  entry.message = std::move(message);
  Enqueue(&entry);
}

void DeliveryQueue::Enqueue(Entry* entry) {
  if (policy_.ordered && !entry->message->ordering_key.empty()) {
    keys_.Append(entry);
  } else if (entry->state == AckState::kPending) {
    entry->queued = true;
    ready_.push_back(entry->message->sequence);
  } else {
    log_.Forget(entry);
  }
}

Consumer* DeliveryQueue::Attach(const ConsumerLimits& limits, std::string client_id,
                                std::weak_ptr<Wakeable> wakeable) {
  ForgetDrained();
  Consumer& added = consumers_.emplace_back();
  added.limits = limits;
  added.client_id = std::move(client_id);
  added.wakeable = std::move(wakeable);
  if (!added.client_id.empty()) {
    for (Consumer& old : consumers_) {
      if (old.closed && old.client_id == added.client_id) keys_.Transfer(&old, &added);
    }
  }
  return &added;
}

void DeliveryQueue::Detach(Consumer* consumer) {
  consumer->closed = true;
  if (std::exchange(consumer->waiting, false)) --waiting_;
  keys_.Park(consumer);
  ForgetDrained();
}

void DeliveryQueue::ForgetDrained() {
  consumers_.remove_if(
      [](const Consumer& c) { return c.closed && c.messages == 0 && c.bound_keys == 0; });
}

bool DeliveryQueue::Fits(const Consumer& consumer, const Budget& budget, const Entry& entry) const {
  if (!consumer.HasRoom() || taken_.size() >= budget.messages) return false;
  return taken_.empty() || taken_bytes_ + entry.message->wire.size() <= budget.bytes;
}

std::vector<Delivery> DeliveryQueue::Take(Consumer* consumer, const Budget& budget,
                                          SteadyTime now) {
  taken_.clear();
  taken_bytes_ = 0;
  const auto open = static_cast<size_t>(std::count_if(consumers_.begin(), consumers_.end(),
                                                      [](const Consumer& c) { return !c.closed; }));
  const size_t share = (Loose() + open - 1) / std::max<size_t>(open, 1);
  size_t loose = 0;
  for (;;) {
    KeyQueue* key = keys_.NextFor(consumer, loose < share);
    if (key == nullptr) break;
    if (key->owner != consumer) ++loose;
    const size_t before = taken_.size();
    TakeFromKey(key, consumer, budget, now);
    if (taken_.size() == before) break;  // no room
  }
  while (loose < share && TakeUnordered(&retries_, consumer, budget, now)) ++loose;
  while (loose < share && TakeUnordered(&ready_, consumer, budget, now)) ++loose;
  if (taken_.empty() && !consumer->waiting) {
    consumer->waiting = true;
    ++waiting_;
  }
  return std::move(taken_);
}

void DeliveryQueue::TakeFromKey(KeyQueue* key, Consumer* consumer, const Budget& budget,
                                SteadyTime now) {
  size_t run = 0;
  while (key->next < key->entries.size() && run < kMessagesInTurn) {
    Entry& entry = log_.At(key->entries[key->next]);
    if (entry.state == AckState::kPending) {
      if (!Fits(*consumer, budget, entry)) break;
      ++run;
      keys_.Bind(key, consumer);
      Lease(&entry, consumer, now);
    }
    ++key->next;
  }
  key->reach = std::max(key->reach, key->next);
  keys_.PlaceLast(key);
}

bool DeliveryQueue::TakeUnordered(std::deque<uint64_t>* queue, Consumer* consumer,
                                  const Budget& budget, SteadyTime now) {
  while (!queue->empty()) {
    Entry* entry = log_.Find(queue->front());
    const bool wanted = entry != nullptr && entry->state == AckState::kPending;
    if (wanted && !Fits(*consumer, budget, *entry)) return false;
    queue->pop_front();
    if (entry != nullptr) entry->queued = false;
    if (!wanted) continue;  // acked meanwhile
    Lease(entry, consumer, now);
    return true;
  }
  return false;
}

void DeliveryQueue::Lease(Entry* entry, Consumer* consumer, SteadyTime now) {
  log_.Lease(entry, consumer, next_lease_++, now + consumer->limits.ack_deadline);
  taken_bytes_ += entry->message->wire.size();
  const int attempt = policy_.max_attempts > 0 ? static_cast<int>(entry->failures) + 1 : 0;
  taken_.push_back({entry->message, entry->lease, attempt});
}

void DeliveryQueue::CollectWakes(std::vector<std::shared_ptr<Wakeable>>* wakes) {
  if (waiting_ == 0) return;
  size_t loose = Loose();
  // A woken consumer goes to the end of the list, so that the next message wakes another one.
  size_t left = consumers_.size();
  for (auto it = consumers_.begin(); left > 0; --left) {
    const auto consumer = it++;
    if (!consumer->waiting || !consumer->HasRoom()) continue;
    if (consumer->keys.empty()) {
      if (loose == 0) continue;
      --loose;
    }
    consumer->waiting = false;
    --waiting_;
    if (auto wakeable = consumer->wakeable.lock()) wakes->push_back(std::move(wakeable));
    consumers_.splice(consumers_.end(), consumers_, consumer);
  }
}

void DeliveryQueue::CollectAll(std::vector<std::shared_ptr<Wakeable>>* wakes) {
  for (Consumer& consumer : consumers_) {
    if (std::exchange(consumer.waiting, false)) --waiting_;
    if (auto wakeable = consumer.wakeable.lock()) wakes->push_back(std::move(wakeable));
  }
}

}  // namespace lockstep::emulator
