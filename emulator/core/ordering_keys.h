#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "emulator/core/entry_log.h"

namespace lockstep::emulator {

// The queues of the ordering keys of one subscription: a key is on one consumer at a time, and a
// redelivery takes every later message of the key with it.
// Not thread-safe: belongs to its DeliveryQueue.
class OrderingKeys {
 public:
  explicit OrderingKeys(EntryLog* log) : log_(log) {}

  // Puts an entry at the end of its key's queue. An acked one only if something older is unacked;
  // else it is forgotten.
  void Append(Entry* entry);

  // The next key that `consumer` may deliver from: one of its own or, if `loose`, one that nobody
  // holds; of the two, the one with the older message.
  KeyQueue* NextFor(Consumer* consumer, bool loose);
  void Bind(KeyQueue* key, Consumer* owner);

  // Makes the message and every later one of its key pending again, acked ones too. Their leases
  // end, and acks of leases before `oldest_lease` will count for nothing.
  void Rewind(uint64_t sequence, uint64_t oldest_lease);

  // After any change: forgets what is acked at the front, frees the key from an owner that holds
  // nothing, and puts it where it is to be delivered from. The key may be gone afterwards.
  void Tidy(KeyQueue* key);
  void Place(KeyQueue* key);
  // The same, behind the others there: each key has its turn.
  void PlaceLast(KeyQueue* key);

  // A stream ended: its keys wait until its leases are over.
  void Park(Consumer* consumer);
  // A client came back under the same id: what belonged to its old stream belongs to the new one.
  void Transfer(Consumer* from, Consumer* to);

  void Clear();
  size_t ready() const { return ready_.size(); }

 private:
  void MoveTo(KeyQueue* key, std::list<KeyQueue*>* list);

  EntryLog* log_;
  std::unordered_map<std::string, std::unique_ptr<KeyQueue>> keys_;
  std::list<KeyQueue*> ready_;  // deliverable and free
};

}  // namespace lockstep::emulator
