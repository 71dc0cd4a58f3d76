// DeliveryQueue: what is kept, and how a seek brings it back.
#include "emulator/core/delivery_queue.h"

namespace lockstep::emulator {

void DeliveryQueue::SetPolicy(const DeliveryPolicy& policy) {
  const bool was_retaining = policy_.retain_acked;
  policy_ = policy;
  log_.set_retain_acked(policy.retain_acked);
  if (!was_retaining || policy_.retain_acked) return;
  for (uint64_t sequence = log_.begin(); sequence < log_.end(); ++sequence) {
    Entry& entry = log_.At(sequence);
    if (entry.state == AckState::kAcked && entry.key == nullptr) entry.message.reset();
  }
  Tidy();
}

void DeliveryQueue::Replay(const std::vector<MessagePtr>& refill, const Wanted& wanted,
                           const Wanted& unacked) {
  Refill(refill, wanted);
  keys_.Clear();
  ready_.clear();
  retries_.clear();
  backoffs_.clear();
  first_since_seek_ = next_lease_;
  for (uint64_t sequence = log_.begin(); sequence < log_.end(); ++sequence) {
    Entry& entry = log_.At(sequence);
    entry.key = nullptr;  // gone with Clear; before EndLease, which would count in it
    entry.queued = false;
    if (entry.state == AckState::kLeased) log_.EndLease(&entry);
    if (entry.message == nullptr) continue;
    entry.state = unacked(*entry.message) ? AckState::kPending : AckState::kAcked;
    Enqueue(&entry);
  }
  Tidy();
}

void DeliveryQueue::Refill(const std::vector<MessagePtr>& refill, const Wanted& wanted) {
  for (auto it = refill.rbegin(); it != refill.rend(); ++it) {
    const MessagePtr& message = *it;
    if (message->sequence >= log_.end()) continue;  // on its way here
    while (log_.begin() > message->sequence) log_.Prepend().state = AckState::kAcked;
    Entry& entry = log_.At(message->sequence);
    if (entry.message == nullptr && wanted(*message)) entry.message = message;
  }
}

std::vector<MessagePtr> DeliveryQueue::Unacked() const {
  std::vector<MessagePtr> unacked;
  for (uint64_t sequence = log_.begin(); sequence < log_.end(); ++sequence) {
    const Entry& entry = log_.At(sequence);
    if (entry.state != AckState::kAcked) unacked.push_back(entry.message);
  }
  return unacked;
}

void DeliveryQueue::Drop() {
  Replay(
      {}, [](const Message&) { return false; }, [](const Message&) { return false; });
  while (!log_.empty()) log_.PopFront();
}

}  // namespace lockstep::emulator
