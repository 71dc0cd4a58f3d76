#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offsets/state_schema.h"
#include "runner/batch/key_plan.h"

namespace lockstep::postgres {
class Transaction;
}

namespace lockstep::runner {

using KeyRows = std::map<std::string, KeyRow>;

// Of the columns aggregate_key, settled_version, blocked_version, parked, open, from `column` on.
KeyRows ReadKeyRows(const postgres::Result& rows, int column);

// The rows of key_state, for what is not a batch's usual way (see Opening).
class KeyStates {
 public:
  explicit KeyStates(const offsets::StateSchema& schema);

  // Locks the rows that are there. REQUIRES: keys in order.
  absl::StatusOr<KeyRows> Lock(postgres::Transaction& transaction, int generation,
                               const std::vector<std::string>& keys) const;

  // The same, having made those that are not there.
  absl::StatusOr<KeyRows> Make(postgres::Transaction& transaction, int generation,
                               const std::vector<std::string>& keys) const;
  // REQUIRES: locked in this transaction. A row that says nothing any more is deleted.
  absl::Status Save(postgres::Transaction& transaction, int generation, const KeyRows& rows) const;

  // Where versions are no longer followed: what was settled would grow stale, and hold events back
  // on the day that they are followed again.
  absl::Status ForgetVersions(postgres::Connection& connection, int generation) const;

  // Aggregates with parked events that nothing blocks (left behind by a crash between a release and
  // its continuation), at most `limit`.
  absl::StatusOr<std::vector<std::string>> Releasable(postgres::Connection& connection,
                                                      int generation, int limit) const;

 private:
  const offsets::StateStatement lock_;
  const offsets::StateStatement make_;
  const offsets::StateStatement save_;
  const offsets::StateStatement forget_;
  const offsets::StateStatement forget_versions_;
  const offsets::StateStatement releasable_;
};

}  // namespace lockstep::runner
