#include "emulator/core/lease_table.h"

#include <algorithm>

namespace lockstep::emulator {

void LeaseTable::DropStale(const IsCurrent& is_current) {
  for (auto it = by_length_.begin(); it != by_length_.end();) {
    auto& records = it->second;
    while (!records.empty() && !is_current(records.front())) records.pop_front();
    it = records.empty() ? by_length_.erase(it) : std::next(it);
  }
}

std::optional<LeaseTable::Record> LeaseTable::PopExpired(SteadyTime now,
                                                         const IsCurrent& is_current) {
  for (auto& [length, records] : by_length_) {
    while (!records.empty() && records.front().deadline <= now) {
      const Record record = records.front();
      records.pop_front();
      if (is_current(record)) return record;
    }
  }
  return std::nullopt;
}

std::optional<SteadyTime> LeaseTable::NextDeadline() const {
  std::optional<SteadyTime> next;
  for (const auto& [length, records] : by_length_) {
    if (records.empty()) continue;
    next = next ? std::min(*next, records.front().deadline) : records.front().deadline;
  }
  return next;
}

size_t LeaseTable::size() const {
  size_t total = 0;
  for (const auto& [length, records] : by_length_) total += records.size();
  return total;
}

}  // namespace lockstep::emulator
