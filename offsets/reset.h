#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offsets/fence.h"
#include "state/groups/epochs.h"

namespace lockstep::offsets {

enum class ResetMode {
  kKeep,       // the read model stays; what it has seen is not applied again
  kEmpty,      // its tables are emptied and a new generation begins
  kOverwrite,  // it stays, and what comes again overwrites its own version (replace tables)
};
std::string_view Name(ResetMode mode);

struct ResetRequest {
  state::SeekTarget seek;  // resolved
  ResetMode mode = ResetMode::kKeep;
  std::vector<std::string> tables;          // schema.table; emptied by kEmpty
  std::optional<WallTime> overwrite_until;  // of kOverwrite; none = all that is published now
  std::optional<WallTime> skip_before;      // with a snapshot; a time Seek skips before its time
  std::string operator_name;
  std::string reason;
  std::string action = "offsets.reset";  // in the audit

  Millis fence = kSeekFence;
  Millis takeover = kSeekTakeover;
  Millis lock_try{2'000};  // how long one try waits for batches and readers
};

struct ResetDone {
  int64_t old_epoch = 0;
  int64_t epoch = 0;
  int generation = 0;
};

// The reset of a group (docs/offsets.md): one transaction under the epoch's lock, held exclusively,
// that begins a new epoch, stores the Seek that it wants, moves the offsets, empties the tables if
// asked and writes the audit. Runners find the new epoch at their next batch or within a
// second; one of them performs the Seek.
class Resets : public state::GroupStore {
 public:
  Resets(const state::Schema& schema, const ConsumerGroup& group)
      : GroupStore(schema, group), epochs_(schema, group) {}

  // `on_wait`: see LockWait.
  absl::StatusOr<ResetDone> Run(
      postgres::Connection& connection, const ResetRequest& request,
      const std::function<void(const std::vector<std::string>& holders)>& on_wait = {}) const;

  // The same inside the caller's transaction, which holds the lock.
  absl::StatusOr<ResetDone> Write(postgres::Transaction& transaction,
                                  const ResetRequest& request) const;

 private:
  absl::Status Empty(postgres::Transaction& transaction, const ResetRequest& request,
                     int old_generation) const;

  const state::Epochs epochs_;
};

}  // namespace lockstep::offsets
