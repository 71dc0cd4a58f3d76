#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "pubsub/admin.h"
#include "runner/batch/batch.h"
#include "runner/options/group_options.h"
#include "runner/seek/obstacle.h"
#include "runner/seek/restore_witness.h"
#include "runner/seek/seek_performer.h"
#include "state/epochs.h"

namespace lockstep::runner {

struct ReadyToRun {
  state::GroupEpoch under;
  std::vector<std::string> release;  // aggregates with parked events that are due
};

// The way to a session: the state schema, the projections against the live tables, the epoch, the
// subscription, the epoch's Seek. Runs on the group's thread.
class GroupStart {
 public:
  GroupStart(const GroupOptions& options, const state::Schema& schema,
             const projections::Projector& projector, const Batch& batch,
             const state::Epochs& epochs, pubsub::Admin& admin, std::string instance,
             SeekTiming seek_timing = {}, bool existing_only = false);

  // Fills `ready`, or answers what stands in the way.
  std::optional<Obstacle> Prepare(postgres::Connection& connection, ReadyToRun& ready);

  SeekPerformer& seek_performer() { return seek_performer_; }
  RestoreWitness& witness() { return witness_; }

 private:
  std::optional<Obstacle> CheckDatabase(postgres::Connection& connection) const;
  absl::StatusOr<state::WantedSeek> FirstSeek(postgres::Connection& connection) const;
  std::optional<Obstacle> LoadEpoch(postgres::Connection& connection, ReadyToRun& ready) const;
  std::optional<Obstacle> CheckDeadLetters() const;
  std::optional<Obstacle> CheckSubscription(const std::string& name) const;

  const GroupOptions& options_;
  const state::Schema& schema_;
  const projections::Projector& projector_;
  const Batch& batch_;
  const state::Epochs& epochs_;
  pubsub::Admin& admin_;
  const std::string instance_;
  const bool existing_only_;
  SeekPerformer seek_performer_;
  RestoreWitness witness_;
};

}  // namespace lockstep::runner
