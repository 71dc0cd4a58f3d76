#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/chaos/system/adoption.h"
#include "tests/chaos/system/blow.h"
#include "tests/chaos/system/ledger.h"
#include "tests/chaos/system/world.h"

namespace lockstep::postgres {
class Connection;
}

namespace lockstep::chaos {

// The checks after the storm; each says what it saw in a line.
class Verdict {
 public:
  Verdict(World& world, const Ledger& ledger);

  // Waits until every group has seen every event and every poison is where it belongs, as long as
  // something still moves.
  void WaitUntilDone(Millis patience);

  // With the programs still running, then with all but Postgres gone.
  void CheckData(const Adoption& adoption, const Inspector& inspector);
  // By the HTTP consumer's own ledger. `blows`: all that the run did.
  void CheckCalls(const std::vector<Blow>& blows);
  // That "no false alarm" is no empty word.
  void CheckCompared(const Inspector& inspector);
  // Last of all that needs the programs: a replica that is spoilt on purpose.
  void CheckSpoilt();
  void CheckLeftovers(const std::set<std::string>& before);
  void CheckProcesses(const std::vector<std::string>& complaints, bool postgres_ended_well,
                      const std::string& folder);

  int passed() const { return passed_; }
  int failed() const { return failed_; }

 private:
  struct Progress {
    int64_t unpublished = 0, seen = 0, dead = 0, parked = 0;
    friend bool operator==(const Progress&, const Progress&) = default;
  };

  bool Look(Progress& progress);
  void CheckGroup(const GroupUnderTest& group, const Expected& expected);
  void CheckOutbox(const std::vector<Witnessed>& given);
  void CheckOrder(postgres::Connection& source, const std::vector<Witnessed>& given);
  void CheckBackfills(const Adoption& adoption, const std::vector<Witnessed>& given);
  void CheckEqual();
  void CheckAudit();
  void Note(bool good, const std::string& what, const std::string& seen);
  // An empty set of violations is good; else the first few are shown.
  void NoteNone(const std::string& what, const std::vector<std::string>& bad);

  World& world_;
  const Ledger& ledger_;
  int passed_ = 0, failed_ = 0;
};

}  // namespace lockstep::chaos
