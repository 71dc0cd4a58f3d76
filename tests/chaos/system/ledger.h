#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "platform/clock.h"

namespace lockstep::chaos {

// How an event is meant to be refused by the runner, if at all.
// The last is an event like any other, but for the HTTP consumer.
enum class Poison { kNone, kGarbage, kRefused, kUnknownType, kRefusedByConsumer };

struct Event {
  std::string id;   // uuid
  std::string key;  // the aggregate
  int64_t version = 0;
  std::string type;                           // Set, Patch, Remove
  std::optional<std::string> a, b;            // what the event says
  std::optional<std::string> full_a, full_b;  // what the aggregate is after it
  bool gone = false;                          // … or that it is not
  std::string bucket;
  int64_t amount = 0;
  Poison poison = Poison::kNone;
  WallTime committed;
};

struct Row {
  int64_t version = 0;
  std::optional<std::string> a, b;
  friend bool operator==(const Row&, const Row&) = default;
};
struct Total {
  int64_t n = 0, amount = 0;
  friend bool operator==(const Total&, const Total&) = default;
};

// What the source held before the first event: r0 to r99. Those from r50 on are never changed.
std::map<std::string, Row> RowsBefore();
inline constexpr int kRowsBefore = 100;
inline constexpr int kRowsThatChange = 50;

// An event that an HTTP consumer must be called for.
struct Due {
  std::string key;
  int64_t version = 0;
  int64_t place = 0;     // among the key's, from 1
  bool refused = false;  // by the consumer
};

// What a read model must hold when every committed event has come to its end.
struct Expected {
  std::map<std::string, Row> rows;
  std::map<std::string, Total> totals;
  std::set<std::string> seen, dead, parked;  // event ids
  std::map<std::string, Due> due;            // by event id
};

// Every event that has committed, kept in this process and in a file, never in the database that is
// under attack. What the read models must hold is computed from it by plain loops that share
// nothing with Lockstep. Any thread.
class Ledger {
 public:
  explicit Ledger(const std::string& file);

  void Commit(std::vector<Event> events);
  int64_t size() const;
  // `called`: in a group with an HTTP handler.
  int64_t poison(bool called) const;
  // The ids from the `from`th on, of events that committed before `before`.
  std::vector<std::string> Ids(size_t from, WallTime before) const;

  // Where a group follows versions and keeps what comes after poison waiting (`ordered`), or takes
  // whatever comes (the rest); `called`: with an HTTP handler.
  Expected Expect(bool ordered, bool called) const;

 private:
  mutable std::mutex mu_;
  std::vector<Event> events_;
  std::ofstream file_;
};

}  // namespace lockstep::chaos
