#pragma once

#include <optional>

#include "pubsub/admin.h"
#include "state/groups/epochs.h"
#include "state/positions/checkpoints.h"

namespace lockstep::runner {

struct CheckpointOptions {
  bool enabled = false;
  Millis every{10 * 60'000};
  Millis keep{7LL * 24 * 3600 *
              1000};  // what only older moments need goes; a snapshot lives 7 days at most
};

// Takes numbered Pub/Sub snapshots and records each, after it was made, in the database of the
// projection. Of several instances one takes it. Runs on the group's thread. Without the right to
// take snapshots it says so once and stays off.
class CheckpointTaker {
 public:
  CheckpointTaker(const state::Schema& schema, const state::Epochs& epochs, pubsub::Admin& admin,
                  CheckpointOptions options)
      : epochs_(epochs), checkpoints_(schema, epochs.group()), admin_(admin), options_(options) {}

  // Called often; does something when a checkpoint is due. True = Pub/Sub has a snapshot that the
  // database does not know: the witness must look before anything goes on.
  bool Tick(postgres::Connection& connection, const state::GroupEpoch& under);

  // Takes one now. Nothing when another instance is at it, or, unless `even_if_not_due`, when the
  // last one is young enough.
  absl::StatusOr<std::optional<state::Checkpoint>> Take(postgres::Connection& connection,
                                                        const state::GroupEpoch& under,
                                                        bool even_if_not_due);

 private:
  absl::StatusOr<state::Checkpoint> Make(postgres::Connection& connection,
                                         const state::GroupEpoch& under, int64_t number);
  // `list`: those that there were before `made`, the newest first.
  absl::Status TakeAwayOld(postgres::Connection& connection, const state::GroupEpoch& under,
                           const state::Checkpoint& made,
                           const std::vector<state::Checkpoint>& list);

  const state::Epochs& epochs_;
  const state::Checkpoints checkpoints_;
  pubsub::Admin& admin_;
  const CheckpointOptions options_;
  bool forbidden_ = false;
  std::optional<SteadyTime> looked_;
};

}  // namespace lockstep::runner
