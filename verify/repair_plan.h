#pragma once

#include <cstdint>
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
  int64_t ghosts_left = 0;  // that were not asked for
  int64_t ahead = 0;        // the source holds less than the replica: a snapshot would not replace
  int64_t gone = 0;         // the source has them no longer

  bool empty() const { return keys.empty() && ghosts.empty(); }
};

// Fails with a sentence when a ghost's aggregate can't be told from the replica's key.
absl::StatusOr<RepairPlan> PlanRepair(const publisher::Declaration& declaration,
                                      const VerifyTable& table, VerifySide& source,
                                      const std::vector<Difference>& differences,
                                      bool delete_ghosts);

}  // namespace lockstep::verify
