#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "offsets/reset.h"
#include "operations/shadow_tables.h"
#include "operations/table_compare.h"
#include "state/inbox.h"
#include "state/rebuilds.h"
#include "state/slots.h"

namespace lockstep::operations {

// Called between the steps of a rebuild; anything but OK ends it there, as a crash would.
using RebuildStep = std::function<absl::Status(std::string_view step)>;

struct SwapResult {
  bool swapped = false;
  int64_t missing = 0;  // events of the live inbox that the shadow still lacks: later, then
  int64_t ahead = 0;    // events that the shadow has and the live slot has not
  std::vector<TableComparison> tables;
  bool differs() const;
};

// The two moments at which a rebuild's slots change places, each one transaction and a reset: the
// epoch's lock is held exclusively, tables are renamed, the slot is flipped, a new epoch begins.
// Runners of the group go over to the new slot by themselves. On the caller's thread.
class RebuildSwap {
 public:
  // `ignored`: per declared table, columns that two builds of it need not have in common.
  RebuildSwap(const state::Schema& schema, const ConsumerGroup& group, ShadowTables tables,
              std::map<std::string, std::set<std::string>> ignored);

  struct Request {
    WallTime check_since;  // the shadow is known to have what the live slot got before
    bool despite_differences = false;
    bool level = true;                  // give up, without comparing, when the shadow is ahead
    Millis pause{5'000};                // how long the live slot waits for the shadow, at most
    Millis lock_try{1'000};             // for batches and readers, per try
    std::function<void()> stop_shadow;  // called once it has everything; nobody fills it then
    RebuildStep at;
  };
  // One try. LOCK_NOT_AVAILABLE (55P03) when somebody holds a lock too long.
  absl::StatusOr<SwapResult> Try(postgres::Connection& connection, const Request& request) const;

  // Back to the old slot, whose subscription has kept what came since.
  absl::Status Back(postgres::Connection& connection, const std::string& operator_name,
                    const std::string& reason, Millis lock_try, const RebuildStep& at) const;

  // Events of the shadow since then that the live slot lacks.
  absl::StatusOr<int64_t> CountAhead(postgres::Connection& connection, WallTime since) const;

  // Live events since `since` that the shadow lacks; of these, how many came since `began`.
  absl::StatusOr<state::Inbox::Missing> CountMissing(postgres::Connection& connection,
                                                     WallTime since, WallTime began) const;

 private:
  absl::StatusOr<int64_t> CountOneSided(postgres::Transaction& transaction, const ConsumerGroup& in,
                                        const ConsumerGroup& not_in, WallTime since) const;
  absl::StatusOr<int64_t> AwaitShadow(postgres::Transaction& transaction,
                                      const Request& request) const;
  absl::Status Compare(postgres::Transaction& transaction, const state::RebuildRow& row,
                       SwapResult& result) const;
  absl::Status HandOver(postgres::Transaction& transaction, const state::RebuildRow& row) const;

  const state::Schema schema_;
  const state::Rebuilds rebuilds_;
  const state::Inbox inbox_;
  const state::Slots slots_;
  const state::Epochs live_;
  const state::Epochs shadow_;
  const offsets::Resets resets_;
  const ShadowTables tables_;
  const std::map<std::string, std::set<std::string>> ignored_;
};

}  // namespace lockstep::operations
