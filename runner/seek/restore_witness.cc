#include "runner/seek/restore_witness.h"

#include <algorithm>

#include "offsets/reset.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/names.h"

namespace lockstep::runner {

// What this process knows is copied first: lanes go on committing meanwhile.
absl::StatusOr<state::InstanceOffsets> RestoreWitness::Compare(postgres::Connection& connection) {
  std::unique_lock lock(mu_);
  const Known known = known_;
  lock.unlock();
  ASSIGN_OR_RETURN(state::InstanceOffsets stored,
                   state::Offsets(schema_).OfInstance(connection, epochs_.group(), instance_));
  if (known.commits.empty() || stored.epoch > known.epoch) return stored;  // a reset clears them
  const bool lacks = stored.epoch < known.epoch || stored.token != known.token ||
                     std::any_of(known.commits.begin(), known.commits.end(), [&](const auto& lane) {
                       return stored.commits[lane.first] < lane.second;
                     });
  if (lacks) return absl::AbortedError("this database lacks what was committed to it");
  return stored;
}

absl::Status RestoreWitness::Accept(postgres::Connection& connection,
                                    const state::GroupEpoch& under, int lane) {
  ASSIGN_OR_RETURN(auto stored, Compare(connection));
  if (stored.epoch != under.epoch || stored.token != under.token) return absl::OkStatus();
  std::lock_guard lock(mu_);
  if (known_.epoch != under.epoch || known_.token != under.token) {
    known_ = {.epoch = under.epoch, .token = under.token};
  }
  // A commit in doubt, whose answer was lost with the connection, is counted here or not at all.
  known_.commits[lane] = stored.commits[lane];
  return absl::OkStatus();
}

void RestoreWitness::Committed(const state::GroupEpoch& under, int lane) {
  std::lock_guard lock(mu_);
  if (known_.epoch == under.epoch && known_.token == under.token) ++known_.commits[lane];
}

absl::Status RestoreWitness::Meet(postgres::Connection& connection) {
  ASSIGN_OR_RETURN(lineage_, state::Epochs::Lineage(connection));
  return absl::OkStatus();
}

bool RestoreWitness::Moved(const state::GroupEpoch& now) const {
  return !lineage_.empty() && !now.lineage.empty() && lineage_ != now.lineage;
}

bool RestoreWitness::WentBack(postgres::Connection& connection, const state::GroupEpoch& now) {
  return Moved(now) || absl::IsAborted(Compare(connection).status());
}

absl::StatusOr<RestoreWitness::Found> RestoreWitness::Look(
    postgres::Connection& connection, const state::GroupEpoch& now,
    const std::vector<state::Checkpoint>& recorded) {
  Found found;
  if (absl::IsAborted(Compare(connection).status())) {
    found.how = "it lacks what this process has committed";
    found.certain = true;
  } else if (Moved(now)) {
    found.how = fmt::format("its server is {}, and was {}: a promoted standby or a restored backup",
                            lineage_, now.lineage);
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

absl::Status RestoreWitness::Check(postgres::Connection& connection, const state::GroupEpoch& now,
                                   int lanes) {
  absl::Status checked;
  if (!enabled_ && !WentBack(connection, now)) {
    checked = NoteServer(connection, now);
  } else {
    // Whoever takes a checkpoint holds the lock between the snapshot and its row.
    ASSIGN_OR_RETURN(const bool locked, checkpoints_.TryLock(connection));
    if (!locked) return Unavailable("another instance looks at the checkpoints");
    // Another instance may have healed it, or somebody reset it, while we came here.
    const auto fresh = epochs_.Load(connection);
    const bool same = fresh.ok() && fresh->epoch == now.epoch && fresh->token == now.token &&
                      fresh->lineage == now.lineage;
    checked = same ? LookAndHeal(connection, now)
                   : Unavailable("the group's epoch has changed meanwhile");
    checkpoints_.Unlock(connection).IgnoreError();
  }
  std::lock_guard lock(mu_);
  if (checked.ok()) {
    std::erase_if(known_.commits, [&](const auto& lane) { return lane.first >= lanes; });
  }
  return checked;
}

absl::Status RestoreWitness::LookAndHeal(postgres::Connection& connection,
                                         const state::GroupEpoch& now) {
  ASSIGN_OR_RETURN(const auto recorded, checkpoints_.List(connection));
  const auto found = Look(connection, now, recorded);
  if (!found.ok()) {
    return Unavailable("the snapshots can't be listed: {}", MessageOf(found.status()));
  }
  if (!found->how.empty()) RETURN_IF_ERROR(Heal(connection, now, recorded, *found));
  return NoteServer(connection, now);
}

absl::Status RestoreWitness::NoteServer(postgres::Connection& connection,
                                        const state::GroupEpoch& now) {
  if (lineage_.empty() || lineage_ == now.lineage) return absl::OkStatus();
  return epochs_.NoteLineage(connection, lineage_, instance_);
}

absl::Status RestoreWitness::Heal(postgres::Connection& connection, const state::GroupEpoch& now,
                                  const std::vector<state::Checkpoint>& recorded,
                                  const Found& found) {
  const std::string what =
      fmt::format("the database of group '{}' went back: {}", epochs_.group().value(), found.how);
  // Perhaps nothing is lost: a checkpoint is near, the epoch's own Seek may go back for days.
  const bool only_moved = !found.certain && found.unknown.empty();
  state::SeekTarget cure = only_moved ? state::SeekTarget() : now.seek;
  // Of old ones only a few are kept: the newest that Pub/Sub still has.
  const state::Checkpoint* newest = nullptr;
  const state::Checkpoint* kept = nullptr;
  for (const state::Checkpoint& c : recorded) {
    if (c.epoch != now.epoch || c.subscription != now.subscription) continue;
    if (kept != nullptr || (only_moved && !enabled_)) break;
    if (newest == nullptr) newest = &c;
    if (!absl::IsNotFound(admin_.GetSnapshot(c.snapshot).status())) kept = &c;
  }
  if (kept != nullptr) {
    cure = state::SeekTarget::ToSnapshot(kept->snapshot);
  } else if (newest != nullptr && !only_moved) {
    return FailedPrecondition(
        "{}; its newest checkpoint, {} of {}, has expired, so the backup is too old to be "
        "healed: rebuild with lockstepctl offsets reset --empty",
        what, newest->number, FormatTimestamp(newest->taken_at));
  }
  if (kept == nullptr && cure.snapshot &&
      absl::IsNotFound(admin_.GetSnapshot(*cure.snapshot).status())) {
    return FailedPrecondition(
        "{}; it holds no checkpoint of this epoch, and the snapshot that the epoch began with, {}, "
        "is gone: rebuild with lockstepctl offsets reset --empty",
        what, *cure.snapshot);
  }
  if (cure.kind == state::SeekTarget::Kind::kNone && !found.certain) {
    Remove(found.unknown);
    if (only_moved) {
      log::Warning(
          fmt::format("the database may have gone back, and without checkpoints nobody can tell: "
                      "if its standby lagged or a backup was restored, replay with lockstepctl "
                      "offsets reset {} --to-time TIME",
                      epochs_.group().value()),
          {{"group", epochs_.group()}, {"how", found.how}});
    }
    return absl::OkStatus();
  }
  if (cure.kind == state::SeekTarget::Kind::kNone) {
    return FailedPrecondition(
        "{}; it holds no checkpoint of this epoch to heal it from: replay with lockstepctl offsets "
        "reset {} --to-time TIME, a time before the standby or the backup fell behind{}",
        what, epochs_.group().value(),
        found.unknown.empty() ? ", or restart to go on with what is there"
                              : fmt::format(", or delete {} to go on with what is there",
                                            fmt::join(found.unknown, " and ")));
  }
  log::Error("the database went back and is being healed by a Seek to its newest checkpoint",
             {{"group", epochs_.group()},
              {"how", found.how},
              {"checkpoint", kept != nullptr ? kept->snapshot : "its own Seek"}});
  const offsets::Resets resets(schema_, epochs_.group());
  const auto healed = resets.Run(connection, {.seek = cure,
                                              .skip_before = now.skip_before,
                                              .operator_name = instance_,
                                              .reason = found.how,
                                              .action = "checkpoint.healed",
                                              .fence = fence_});
  RETURN_IF_ERROR(healed.status());
  Remove(found.unknown);
  RETURN_IF_ERROR(NoteServer(connection, now));
  std::lock_guard lock(mu_);
  known_.commits.clear();
  return Unavailable("a restored database is being healed");
}

void RestoreWitness::Remove(const std::vector<std::string>& snapshots) {
  for (const std::string& snapshot : snapshots) {
    const absl::Status gone = admin_.DeleteSnapshot(snapshot);
    if (!gone.ok() && !absl::IsNotFound(gone)) healed_.insert(snapshot);
  }
}

}  // namespace lockstep::runner
