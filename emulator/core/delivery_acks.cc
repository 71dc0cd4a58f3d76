// DeliveryQueue: how a lease ends.
#include <algorithm>

#include "emulator/core/delivery_queue.h"

namespace lockstep::emulator {

Entry* DeliveryQueue::FindLease(uint64_t sequence, uint64_t lease) {
  Entry* entry = log_.Find(sequence);
  const bool current =
      entry != nullptr && entry->state == AckState::kLeased && entry->lease == lease;
  return current ? entry : nullptr;
}

AckOutcome DeliveryQueue::Acknowledge(uint64_t sequence, uint64_t lease, bool past_seek) {
  Entry* entry = log_.Find(sequence);
  if (entry == nullptr && acked_leases_.count(lease) > 0) return AckOutcome::kDone;
  if (entry == nullptr || lease == 0 || lease >= next_lease_) return AckOutcome::kInvalid;
  // With exactly-once delivery only the last lease counts. Without it a late ack still counts,
  // unless a redelivery of an older message of the key has taken this one back.
  if (policy_.exactly_once ? lease != entry->lease : lease < entry->oldest_lease) {
    return AckOutcome::kInvalid;
  }
  if (entry->state == AckState::kAcked) return AckOutcome::kDone;
  if (lease < first_since_seek_ && !past_seek) return AckOutcome::kInvalid;
  if (policy_.exactly_once && entry->key != nullptr && entry->key->entries.front() != sequence) {
    return AckOutcome::kUnordered;
  }
  MarkAcked(entry);
  if (policy_.exactly_once) RememberAcked(lease);
  return AckOutcome::kDone;
}

void DeliveryQueue::RememberAcked(uint64_t lease) {
  constexpr size_t kRemembered = 10'000;
  acked_leases_.insert(lease);
  acked_in_order_.push_back(lease);
  if (acked_in_order_.size() <= kRemembered) return;
  acked_leases_.erase(acked_in_order_.front());
  acked_in_order_.pop_front();
}

AckOutcome DeliveryQueue::Extend(uint64_t sequence, uint64_t lease, SteadyTime until) {
  Entry* entry = FindLease(sequence, lease);
  if (entry == nullptr) return AckOutcome::kInvalid;
  log_.Extend(entry, until);
  return AckOutcome::kDone;
}

AckOutcome DeliveryQueue::Release(uint64_t sequence, uint64_t lease, SteadyTime now) {
  if (FindLease(sequence, lease) == nullptr) return AckOutcome::kInvalid;
  Redeliver(sequence, now);
  return AckOutcome::kDone;
}

void DeliveryQueue::Tidy() {
  while (!log_.empty() && log_.front().state == AckState::kAcked &&
         log_.front().message == nullptr) {
    log_.PopFront();
  }
}

void DeliveryQueue::MarkAcked(Entry* entry) {
  if (entry->state == AckState::kLeased) log_.EndLease(entry);
  entry->state = AckState::kAcked;
  if (entry->key != nullptr) {
    keys_.Tidy(entry->key);
  } else {
    log_.Forget(entry);
  }
}

void DeliveryQueue::Redeliver(uint64_t sequence, SteadyTime now) {
  Entry& entry = log_.At(sequence);
  ++entry.failures;
  if (policy_.max_attempts > 0 && static_cast<int>(entry.failures) >= policy_.max_attempts &&
      can_dead_letter_()) {
    dead_letters_.push_back({entry.message, static_cast<int>(entry.failures)});
    return MarkAcked(&entry);
  }
  const Millis backoff = Backoff(entry.failures);
  if (backoff > Millis(0)) backoffs_.emplace(now + backoff, sequence);
  if (KeyQueue* key = entry.key; key != nullptr) {
    keys_.Rewind(sequence, next_lease_);
    key->blocked = backoff > Millis(0);
    key->not_before = now + backoff;
    return keys_.Tidy(key);
  }
  log_.EndLease(&entry);
  entry.state = AckState::kPending;
  entry.lease = 0;
  if (backoff > Millis(0)) return;
  entry.queued = true;
  retries_.push_back(sequence);
}

Millis DeliveryQueue::Backoff(uint32_t failures) const {
  const uint32_t doublings = std::min<uint32_t>(failures - 1, 20);
  return std::min(policy_.min_backoff * (int64_t{1} << doublings), policy_.max_backoff);
}

void DeliveryQueue::Advance(SteadyTime now, WallTime wall) {
  const auto& leases = log_.deadlines();
  while (!leases.empty() && leases.begin()->first <= now) Redeliver(leases.begin()->second, now);
  EndBackoffs(now);
  while (!log_.empty()) {
    Entry& front = log_.front();
    if (front.message != nullptr && front.message->publish_time + policy_.retention <= wall) {
      if (front.key != nullptr) front.key->blocked = false;
      MarkAcked(&front);
      front.message.reset();
    }
    if (front.state != AckState::kAcked || front.message != nullptr) break;
    log_.PopFront();
  }
  ForgetDrained();
}

void DeliveryQueue::EndBackoffs(SteadyTime now) {
  while (!backoffs_.empty() && backoffs_.begin()->first <= now) {
    const uint64_t sequence = backoffs_.begin()->second;
    backoffs_.erase(backoffs_.begin());
    Entry* entry = log_.Find(sequence);
    if (entry == nullptr || entry->state != AckState::kPending || entry->queued) continue;
    if (entry->key != nullptr) {
      if (entry->key->not_before > now) continue;
      entry->key->blocked = false;
      keys_.Place(entry->key);
    } else {
      entry->queued = true;
      retries_.push_back(sequence);
    }
  }
}

std::optional<SteadyTime> DeliveryQueue::NextDue(SteadyTime now, WallTime wall) const {
  std::optional<SteadyTime> due;
  const auto consider = [&due](SteadyTime time) { due = due ? std::min(*due, time) : time; };
  if (!log_.deadlines().empty()) consider(log_.deadlines().begin()->first);
  if (!backoffs_.empty()) consider(backoffs_.begin()->first);
  if (!log_.empty() && log_.front().message != nullptr) {
    const auto left = log_.front().message->publish_time + policy_.retention - wall;
    consider(now + std::chrono::ceil<Millis>(left));
  }
  return due;
}

}  // namespace lockstep::emulator
