#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runner/lane/group_context.h"
#include "runner/seek/obstacle.h"
#include "runner/seek/seek_performer.h"

namespace lockstep::runner {

struct ReadyToRun {
  state::GroupEpoch under;
  std::vector<std::string> release;  // aggregates with parked events that are due
};

// The way to a session: the state schema, the projections against the live tables, the epoch, the
// subscription, the epoch's Seek. Runs on the group's thread.
class GroupStart {
 public:
  // `group` outlives it.
  explicit GroupStart(GroupContext& group);

  // Fills `ready`, or answers what stands in the way.
  std::optional<Obstacle> Prepare(postgres::Connection& connection, ReadyToRun& ready);

 private:
  std::optional<Obstacle> CheckDatabase(postgres::Connection& connection) const;
  absl::StatusOr<state::SeekTarget> FirstSeek(postgres::Connection& connection) const;
  std::optional<Obstacle> LoadEpoch(postgres::Connection& connection, ReadyToRun& ready) const;
  std::optional<Obstacle> CheckDeadLetters() const;
  std::optional<Obstacle> CheckSubscription(const std::string& name) const;

  GroupContext& group_;
  const GroupOptions& options_;
  const state::Epochs& epochs_;
  SeekPerformer seek_performer_;
};

}  // namespace lockstep::runner
