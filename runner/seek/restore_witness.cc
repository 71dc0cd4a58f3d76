#include "runner/seek/restore_witness.h"

#include <algorithm>

#include "offsets/reset.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/names.h"

namespace lockstep::runner {

void RestoreWitness::Committed(const state::GroupEpoch& under, int lane, WallTime publish_time) {
  std::lock_guard lock(mu_);
  if (under.epoch != known_.epoch || under.token != known_.token) {
    known_ = {.epoch = under.epoch, .token = under.token};
  }
  WallTime& last = known_.committed[lane];
  last = std::max(last, publish_time);
}

bool RestoreWitness::WentBack(postgres::Connection& connection) {
  constexpr Millis kRounding{1};  // Postgres keeps microseconds
  std::unique_lock lock(mu_);
  const Known known = known_;
  lock.unlock();
  if (known.committed.empty()) return false;
  const auto stored = state::Offsets(schema_).OfInstance(connection, epochs_.group(), instance_);
  if (!stored.ok()) return false;
  if (!*stored) return true;
  if ((*stored)->epoch > known.epoch) return false;  // a reset, which clears the offsets
  if ((*stored)->epoch < known.epoch || (*stored)->token != known.token) return true;
  const auto& lanes = (*stored)->lanes;
  return std::any_of(known.committed.begin(), known.committed.end(), [&](const auto& lane) {
    const auto row = lanes.find(lane.first);
    return row == lanes.end() || row->second + kRounding < lane.second;
  });
}

absl::StatusOr<RestoreWitness::Found> RestoreWitness::Look(
    postgres::Connection& connection, const state::GroupEpoch& now,
    const std::vector<state::Checkpoint>& recorded) {
  Found found;
  if (WentBack(connection)) {
    found.how = "its offsets are behind what this process has committed";
    found.certain = true;
  }
  if (!enabled_) return found;
  const auto snapshots = admin_.ListSnapshots(std::string(pubsub::ProjectOf(now.subscription)));
  if (absl::IsPermissionDenied(snapshots.status())) {
    log::Warning("no right to list snapshots: a restored database goes unrecognised at start",
                 {{"group", epochs_.group()}});
    enabled_ = false;
    return found;
  }
  RETURN_IF_ERROR(snapshots.status());
  const int64_t newest = recorded.empty() ? 0 : recorded.front().number;
  ASSIGN_OR_RETURN(const int64_t reserved, checkpoints_.Newest(connection));
  for (const pubsub::Snapshot& snapshot : *snapshots) {
    const auto number = state::Checkpoints::NumberOf(snapshot.name, now.subscription);
    if (!number || *number <= newest || healed_.contains(snapshot.name)) continue;
    found.unknown.push_back(snapshot.name);
    found.certain = found.certain || *number > reserved;
    found.how = fmt::format("Pub/Sub has checkpoint {} and the database knows none past {}",
                            *number, newest);
  }
  return found;
}

absl::Status RestoreWitness::Check(postgres::Connection& connection, const state::GroupEpoch& now) {
  if (!enabled_ && !WentBack(connection)) return absl::OkStatus();
  // Whoever takes a checkpoint holds the lock between the snapshot and its row.
  ASSIGN_OR_RETURN(const bool locked, checkpoints_.TryLock(connection));
  if (!locked) return Unavailable("another instance looks at the checkpoints");
  const absl::Status checked = LookAndHeal(connection, now);
  checkpoints_.Unlock(connection).IgnoreError();
  return checked;
}

absl::Status RestoreWitness::LookAndHeal(postgres::Connection& connection,
                                         const state::GroupEpoch& now) {
  ASSIGN_OR_RETURN(const auto recorded, checkpoints_.List(connection));
  const auto found = Look(connection, now, recorded);
  if (!found.ok()) {
    return Unavailable("the snapshots can't be listed: {}", MessageOf(found.status()));
  }
  return found->how.empty() ? absl::OkStatus() : Heal(connection, now, recorded, *found);
}

absl::Status RestoreWitness::Heal(postgres::Connection& connection, const state::GroupEpoch& now,
                                  const std::vector<state::Checkpoint>& recorded,
                                  const Found& found) {
  const std::string what =
      fmt::format("the database of group '{}' went back: {}", epochs_.group().value(), found.how);
  state::SeekTarget cure = now.seek;
  const auto checkpoint =
      std::find_if(recorded.begin(), recorded.end(), [&](const state::Checkpoint& c) {
        return c.epoch == now.epoch && c.subscription == now.subscription;
      });
  if (checkpoint != recorded.end()) {
    cure = state::SeekTarget::ToSnapshot(checkpoint->snapshot);
    const auto snapshot = admin_.GetSnapshot(checkpoint->snapshot);
    if (absl::IsNotFound(snapshot.status())) {
      return FailedPrecondition(
          "{}; its newest checkpoint, {} of {}, has expired, so the backup is too old to be "
          "healed: rebuild with lockstepctl offsets reset --empty",
          what, checkpoint->number, FormatTimestamp(checkpoint->taken_at));
    }
  }
  if (cure.kind == state::SeekTarget::Kind::kNone && !found.certain) {
    Remove(found.unknown);
    return absl::OkStatus();
  }
  if (cure.kind == state::SeekTarget::Kind::kNone) {
    return FailedPrecondition(
        "{}; it holds no checkpoint of this epoch to heal it from: replay with lockstepctl "
        "offsets reset --to-time{}",
        what,
        found.unknown.empty() ? ", or restart to go on with what is there"
                              : fmt::format(", or delete {} to go on with what is there",
                                            fmt::join(found.unknown, " and ")));
  }
  log::Error(
      "the database went back and is being healed by a Seek to its newest checkpoint",
      {{"group", epochs_.group()},
       {"how", found.how},
       {"checkpoint", checkpoint != recorded.end() ? checkpoint->snapshot : "its own Seek"}});
  const offsets::Resets resets(schema_, epochs_.group());
  const auto healed = resets.Run(connection, {.seek = cure,
                                              .skip_before = now.skip_before,
                                              .operator_name = instance_,
                                              .reason = found.how,
                                              .action = "checkpoint.healed",
                                              .fence = fence_});
  RETURN_IF_ERROR(healed.status());
  Remove(found.unknown);
  std::lock_guard lock(mu_);
  known_.committed.clear();
  return Unavailable("a restored database is being healed");
}

void RestoreWitness::Remove(const std::vector<std::string>& snapshots) {
  for (const std::string& snapshot : snapshots) {
    const absl::Status gone = admin_.DeleteSnapshot(snapshot);
    if (!gone.ok() && !absl::IsNotFound(gone)) healed_.insert(snapshot);
  }
}

}  // namespace lockstep::runner
