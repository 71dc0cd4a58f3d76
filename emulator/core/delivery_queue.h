#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "emulator/core/entry_log.h"
#include "emulator/core/message.h"
#include "emulator/core/ordering_keys.h"
#include "platform/clock.h"

namespace lockstep::emulator {

struct DeliveryPolicy {
  bool ordered = false;
  bool exactly_once = false;
  bool retain_acked = false;
  Millis retention = std::chrono::hours(7 * 24);  // the topic's, where that is longer
  // Backoff before a redelivery; 0 and 0 = at once.
  Millis min_backoff{0};
  Millis max_backoff{0};
  int max_attempts = 0;  // then it is a dead letter; 0 = never
};

struct Delivery {
  MessagePtr message;
  uint64_t lease = 0;
  int attempt = 0;    // 0 where there is no dead-letter policy, as the service has it
  uint32_t copy = 0;  // more for a duplicate made by fault injection
};

struct DeadLetter {
  MessagePtr message;
  int attempts = 0;
};

enum class AckOutcome { kDone, kInvalid, kUnordered };

// How much one response may carry.
struct Budget {
  size_t messages = 1000;
  size_t bytes = 1 << 20;  // more only for a single message; clients refuse 4 MiB by default
};

// What one subscription owes its consumers: which messages are pending, leased or acked, to whom
// each may go next, and when a lease or a backoff ends. Pure bookkeeping in memory; time is passed
// in. Not thread-safe: Subscription holds its lock around every call.
class DeliveryQueue {
 public:
  // `can_dead_letter` is asked before a message is given up.
  DeliveryQueue(DeliveryPolicy policy, uint64_t first_sequence,
                std::function<bool()> can_dead_letter);

  void SetPolicy(const DeliveryPolicy& policy);

  // REQUIRES: message->sequence == end(). One that is not wanted (filtered out) counts as acked.
  void Append(MessagePtr message, bool wanted);
  uint64_t end() const { return log_.end(); }

  Consumer* Attach(const ConsumerLimits& limits, std::string client_id,
                   std::weak_ptr<Wakeable> wakeable);
  void Detach(Consumer* consumer);
  // Leases messages to the consumer. One that gets nothing is waiting, until CollectWakes names it.
  std::vector<Delivery> Take(Consumer* consumer, const Budget& budget, SteadyTime now);
  // The waiting consumers for whom there is something now; they wait no longer.
  void CollectWakes(std::vector<std::shared_ptr<Wakeable>>* wakes);
  void CollectAll(std::vector<std::shared_ptr<Wakeable>>* wakes);

  // `past_seek`: a lease from before a Seek counts too (fault injection).
  AckOutcome Acknowledge(uint64_t sequence, uint64_t lease, bool past_seek = false);
  AckOutcome Extend(uint64_t sequence, uint64_t lease, SteadyTime until);
  AckOutcome Release(uint64_t sequence, uint64_t lease, SteadyTime now);  // a nack
  // Drops what is acked and not kept at the front. To be called after a batch of the three above.
  void Tidy();

  // Ends leases and backoffs that are over, forgets what is past its retention.
  void Advance(SteadyTime now, WallTime wall);
  // When Advance has something to do again.
  std::optional<SteadyTime> NextDue(SteadyTime now, WallTime wall) const;
  std::vector<DeadLetter> TakeDeadLetters() { return std::move(dead_letters_); }

  // A seek: `refill` are messages that were kept elsewhere (the topic's retention, a snapshot), in
  // order; each kept message becomes pending or acked as `unacked` says. Leases end, and an ack
  // that was under way acks nothing: what becomes pending is delivered at least once after the
  // seek.
  using Wanted = std::function<bool(const Message&)>;
  void Replay(const std::vector<MessagePtr>& refill, const Wanted& wanted, const Wanted& unacked);
  // What is not acked, in order.
  std::vector<MessagePtr> Unacked() const;
  void Drop();  // everything

 private:
  bool Fits(const Consumer& consumer, const Budget& budget, const Entry& entry) const;
  void Lease(Entry* entry, Consumer* consumer, SteadyTime now);
  void TakeFromKey(KeyQueue* key, Consumer* consumer, const Budget& budget, SteadyTime now);
  bool TakeUnordered(std::deque<uint64_t>* queue, Consumer* consumer, const Budget& budget,
                     SteadyTime now);
  size_t Loose() const { return ready_.size() + retries_.size() + keys_.ready(); }

  Entry* FindLease(uint64_t sequence, uint64_t lease);
  void MarkAcked(Entry* entry);
  void RememberAcked(uint64_t lease);
  void Redeliver(uint64_t sequence, SteadyTime now);
  Millis Backoff(uint32_t failures) const;
  void Enqueue(Entry* entry);
  void Refill(const std::vector<MessagePtr>& refill, const Wanted& wanted);
  void EndBackoffs(SteadyTime now);
  void ForgetDrained();

  DeliveryPolicy policy_;
  std::function<bool()> can_dead_letter_;
  EntryLog log_;
  OrderingKeys keys_;
  std::list<Consumer> consumers_;                 // a list: entries and keys point at them
  size_t waiting_ = 0;                            // consumers that wait
  std::deque<uint64_t> ready_;                    // messages without a key, in order
  std::deque<uint64_t> retries_;                  // the same, redelivered: they go first
  std::multimap<SteadyTime, uint64_t> backoffs_;  // when it ends; may be out of date
  uint64_t next_lease_ = 1;
  uint64_t first_since_seek_ = 1;  // the first lease after the last seek
  // With exactly-once delivery: the last leases that were acked. A client that lost the answer asks
  // again and must hear yes, also when the message is gone.
  std::unordered_set<uint64_t> acked_leases_;
  std::deque<uint64_t> acked_in_order_;
  std::vector<DeadLetter> dead_letters_;

  // Of the Take under way.
  std::vector<Delivery> taken_;
  size_t taken_bytes_ = 0;
};

}  // namespace lockstep::emulator
