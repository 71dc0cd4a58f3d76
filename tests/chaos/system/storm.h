#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/chaos/system/adoption.h"
#include "tests/chaos/system/ledger.h"
#include "tests/chaos/system/schedule.h"
#include "tests/chaos/system/source.h"
#include "tests/chaos/system/world.h"

namespace lockstep::chaos {

// Carries out a schedule against the world while the source writes, and counts. Of the main thread.
class Storm {
 public:
  Storm(World& world, Source& source, const Ledger& ledger, Adoption& adoption,
        Inspector& inspector);
  ~Storm();

  void Run(const std::vector<Planned>& schedule, Millis length);

  const std::map<Fault, int>& injected() const { return injected_; }
  int resets_done() const { return resets_done_; }
  int resets_refused() const { return resets_refused_; }
  // What befell the runners' database and the HTTP consumer, and when their group began anew.
  const std::vector<Blow>& blows() const { return blows_; }
  int locks_held() const { return locks_held_; }  // to their end

 private:
  void Strike(const Planned& planned);
  void Tick();
  void Last(Gate& gate, Millis time);
  void Note(const Planned& planned);
  void Consumer(const std::string& mood, Millis time);
  void Lock(const std::string& database, const std::string& table, Millis time);
  void TickLocks();
  void Reset(uint64_t pick);
  void ReapReset();
  // A time such that no event of the feed that is still to come was published before it; empty when
  // that can't be known now.
  std::string SafeTime();

  World& world_;
  Source& source_;
  const Ledger& ledger_;
  Adoption& adoption_;
  Inspector& inspector_;
  std::map<Fault, int> injected_;
  std::vector<std::pair<SteadyTime, std::function<void()>>> endings_;
  // Another session that keeps a table to itself; one whose server goes down comes back.
  struct TableLock {
    std::string database, table;
    SteadyTime until;
    std::unique_ptr<Child> session;
  };
  std::vector<TableLock> locks_;
  std::unique_ptr<Child> reset_;
  std::optional<size_t> reset_blow_;  // its place among blows_
  SteadyTime reset_limit_;
  bool over_ = false;
  int failovers_ = 0;  // before the last look into the inbox
  int refusals_ = 0;   // that last at this moment
  int moods_ = 0;      // of the HTTP consumer, likewise
  std::vector<Blow> blows_;
  int resets_ = 0;  // begun
  int resets_done_ = 0, resets_refused_ = 0, locks_held_ = 0;
  size_t in_inbox_ = 0;      // so many of the ledger's events are in the feed's inbox …
  int64_t generation_ = -1;  // … of this generation
};

}  // namespace lockstep::chaos
