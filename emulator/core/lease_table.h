#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "platform/clock.h"

namespace lockstep::emulator {

// When leases run out, without a timer per message: one queue per length of lease. Leases of the
// same length run out in the order in which they were given, so only the fronts need a look. A
// lease that was settled or extended leaves its record behind until it reaches the front.
// Not thread-safe: belongs to its DeliveryQueue.
class LeaseTable {
 public:
  struct Record {
    uint64_t sequence;
    uint64_t lease;
    SteadyTime deadline;
  };
  // Whether the record still is its message's lease and deadline.
  using IsCurrent = std::function<bool(const Record&)>;

  void Add(Millis length, const Record& record) { by_length_[length].push_back(record); }

  // Forgets records at the fronts that are no longer current. Cheap; called after every ack.
  void DropStale(const IsCurrent& is_current);

  // Takes out a current record whose deadline is not after `now`, if there is one.
  std::optional<Record> PopExpired(SteadyTime now, const IsCurrent& is_current);

  // The earliest deadline at the fronts.
  std::optional<SteadyTime> NextDeadline() const;

  void Clear() { by_length_.clear(); }
  size_t size() const;

 private:
  std::map<Millis, std::deque<Record>> by_length_;  // at most 601 lengths: whole seconds to 600
};

}  // namespace lockstep::emulator
