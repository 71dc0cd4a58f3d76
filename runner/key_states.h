#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offsets/state_schema.h"
#include "runner/key_plan.h"

namespace lockstep::postgres {
class Transaction;
}

namespace lockstep::runner {

using KeyRows = std::map<std::string, KeyRow>;

// A run of versions of one aggregate without a gap or a poisoned event: the usual case.
struct Chain {
  std::string aggregate_key;
  int64_t first = 0;
  int64_t last = 0;
  bool smooth = true;  // false: there is a gap or poison in it, so it must be planned
};

// The rows of key_state. Locks are taken in the order of the keys, after the inbox insert, so that
// batches which meet on an aggregate queue and the later one sees what the earlier decided.
class KeyStates {
 public:
  explicit KeyStates(const offsets::StateSchema& schema);

  // For groups that follow versions: locks every chain's row, making missing ones, and moves it
  // forward at once where the chain is smooth and follows the settled version. Answers the rows
  // that it did not move: those need a plan. REQUIRES: chains in the order of their keys.
  absl::StatusOr<KeyRows> Advance(postgres::Transaction& transaction, int generation,
                                  const std::vector<Chain>& chains) const;

  // Locks the rows that are there. REQUIRES: keys in order.
  absl::StatusOr<KeyRows> Lock(postgres::Transaction& transaction, int generation,
                               const std::vector<std::string>& keys) const;

  // REQUIRES: locked in this transaction. A row that says nothing any more is deleted.
  absl::Status Save(postgres::Transaction& transaction, int generation, const KeyRows& rows) const;

  // Aggregates with parked events that nothing blocks (left behind by a crash between a release and
  // its continuation), at most `limit`.
  absl::StatusOr<std::vector<std::string>> Releasable(postgres::Connection& connection,
                                                      int generation, int limit) const;

 private:
  const offsets::StateStatement advance_;
  const offsets::StateStatement lock_;
  const offsets::StateStatement save_;
  const offsets::StateStatement forget_;
  const offsets::StateStatement releasable_;
};

}  // namespace lockstep::runner
