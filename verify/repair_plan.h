#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "publisher/backfill/backfill_store.h"
#include "publisher/backfill/declaration.h"
#include "verify/plan.h"
#include "verify/verify.h"

namespace lockstep::verify {

// What a repair sends, of the differences of one table. The publisher sends it and the runner
// applies it: nothing else writes to a read model.
struct RepairPlan {
  std::vector<publisher::KeyTexts> keys;  // of the source: missing, behind, other content
  std::vector<publisher::Ghost> ghosts;
  // Ghosts that a message that says so can't take away, or not without harm to other rows.
  struct Kept {
    RowKey key;
    std::string why;
  };
  std::vector<Kept> kept;
  int64_t ghosts_left = 0;  // that were not asked for
  int64_t ahead = 0;        // the source holds less than the replica: a snapshot would not replace
  int64_t gone = 0;         // the source has them no longer
  int64_t unmapped = 0;     // as snapshots they would be dead letters

  bool empty() const { return keys.empty() && ghosts.empty(); }
};

struct GhostOptions {
  bool remove = false;  // else they are counted
  // The operator says that the table holds rows of this source alone, and the source all of them.
  // Without, only rows whose aggregate is of the source's type are taken away, and none where the
  // source is a query.
  bool whole_table = false;
  // The differences are all that there are: no key moved, none was only counted.
  bool complete = true;
};

// Fails with a sentence when a ghost's aggregate can't be told from the replica's key.
absl::StatusOr<RepairPlan> PlanRepair(const publisher::Declaration& declaration,
                                      const VerifyTable& table, VerifySide& source,
                                      VerifySide& replica,
                                      const std::vector<Difference>& differences,
                                      const GhostOptions& options);

}  // namespace lockstep::verify
