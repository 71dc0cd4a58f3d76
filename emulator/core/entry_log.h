#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "emulator/core/message.h"
#include "platform/clock.h"

namespace lockstep::emulator {

struct KeyQueue;

// Something that waits for messages: a StreamingPull or a Pull. Called without any lock held.
class Wakeable {
 public:
  virtual ~Wakeable() = default;
  // There may be something to take now.
  virtual void Wake() = 0;
};

struct ConsumerLimits {
  int64_t max_messages = 0;  // outstanding at once; 0 or less = no limit
  int64_t max_bytes = 0;     // likewise
  Millis ack_deadline{10'000};
};

// A stream or a Pull as its subscription sees it. It outlives its stream for as long as it holds
// leases: a client may ack them by unary calls after its stream has ended.
struct Consumer {
  ConsumerLimits limits;
  std::string client_id;
  std::weak_ptr<Wakeable> wakeable;  // its stream may be gone before we notice
  int64_t messages = 0;              // leased to it
  int64_t bytes = 0;
  size_t bound_keys = 0;      // keys whose owner it is
  bool waiting = false;       // took nothing when it asked last
  bool closed = false;        // its stream has ended
  std::list<KeyQueue*> keys;  // its keys that have something to deliver

  bool HasRoom() const {
    return (limits.max_messages <= 0 || messages < limits.max_messages) &&
           (limits.max_bytes <= 0 || bytes < limits.max_bytes);
  }
};

enum class AckState : uint8_t { kPending, kLeased, kAcked };

// One message in one subscription.
struct Entry {
  MessagePtr message;          // null: acked and no longer kept, or never wanted by the filter
  KeyQueue* key = nullptr;     // while it stands in the queue of its ordering key
  Consumer* holder = nullptr;  // while leased
  uint64_t lease = 0;          // the last one given; 0 after it expired or was given back
  uint64_t oldest_lease = 0;   // acks of leases before this one count for nothing
  SteadyTime deadline;         // of the lease
  uint32_t failures = 0;       // leases that expired or were given back
  AckState state = AckState::kPending;
  bool queued = false;  // stands in one of the queues for messages without a key
};

// The messages of one ordering key that are not done with. All before `next` are leased or acked.
// An acked one stays for as long as an older one is not acked: if that is redelivered, so is this.
struct KeyQueue {
  std::string name;
  std::deque<uint64_t> entries;  // sequences, rising; the first one is never acked
  size_t next = 0;               // index of the first to deliver
  size_t reach = 0;              // none from this index on was ever delivered
  size_t outstanding = 0;        // leased ones
  Consumer* owner = nullptr;     // while something is outstanding: nobody else gets this key
  SteadyTime not_before;         // of its retry backoff
  bool blocked = false;          // waits for not_before
  std::list<KeyQueue*>* list = nullptr;  // where it waits to be delivered, if it does
  std::list<KeyQueue*>::iterator position;
};

// Entries by sequence, and their leases by deadline. Acked entries whose messages are not kept are
// dropped at the front; in between they stay as small husks.
class EntryLog {
 public:
  explicit EntryLog(uint64_t first_sequence) : begin_(first_sequence) {}

  uint64_t begin() const { return begin_; }
  uint64_t end() const { return begin_ + entries_.size(); }
  bool empty() const { return entries_.empty(); }
  Entry& front() { return entries_.front(); }
  const Entry& front() const { return entries_.front(); }

  Entry* Find(uint64_t sequence) {
    return sequence < begin_ || sequence >= end() ? nullptr : &At(sequence);
  }
  Entry& At(uint64_t sequence) { return entries_[sequence - begin_]; }
  const Entry& At(uint64_t sequence) const { return entries_[sequence - begin_]; }

  Entry& Append() { return entries_.emplace_back(); }
  Entry& Prepend() {
    --begin_;
    return entries_.emplace_front();
  }
  void PopFront() {
    ++begin_;
    entries_.pop_front();
  }
  // Drops an acked one's message, unless acked ones are retained.
  void Forget(Entry* entry) const {
    if (!retain_acked_) entry->message.reset();
  }
  void set_retain_acked(bool retain) { retain_acked_ = retain; }

  void Lease(Entry* entry, Consumer* holder, uint64_t lease, SteadyTime deadline) {
    entry->state = AckState::kLeased;
    entry->holder = holder;
    entry->lease = lease;
    entry->deadline = deadline;
    // At the end: most leases end in the order in which they are given.
    deadlines_.emplace_hint(deadlines_.end(), deadline, entry->message->sequence);
    ++holder->messages;
    holder->bytes += static_cast<int64_t>(entry->message->wire.size());
    if (entry->key != nullptr) ++entry->key->outstanding;
  }
  void Extend(Entry* entry, SteadyTime deadline) {
    deadlines_.erase({entry->deadline, entry->message->sequence});
    entry->deadline = deadline;
    deadlines_.emplace(deadline, entry->message->sequence);
  }
  // Takes the lease away from its holder; what becomes of the message is the caller's.
  void EndLease(Entry* entry) {
    deadlines_.erase({entry->deadline, entry->message->sequence});
    --entry->holder->messages;
    entry->holder->bytes -= static_cast<int64_t>(entry->message->wire.size());
    entry->holder = nullptr;
    if (entry->key != nullptr) --entry->key->outstanding;
  }
  // When each lease ends and of which sequence it is, the earliest first.
  const std::set<std::pair<SteadyTime, uint64_t>>& deadlines() const { return deadlines_; }

 private:
  uint64_t begin_;
  bool retain_acked_ = false;
  std::deque<Entry> entries_;
  std::set<std::pair<SteadyTime, uint64_t>> deadlines_;
};

}  // namespace lockstep::emulator
