#include "runner/seek/checkpoint_taker.h"

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep::runner {

using state::Checkpoint;

bool CheckpointTaker::Tick(postgres::Connection& connection, const state::GroupEpoch& under) {
  if (!options_.enabled || forbidden_) return false;
  // Another instance may have taken the last one: the database is asked a few times per interval.
  const SteadyTime now = Clock::System().Steady();
  if (looked_ && now - *looked_ < options_.every / 10) return false;
  looked_ = now;
  const auto taken = Take(connection, under, /*even_if_not_due=*/false);
  if (taken.ok()) {
    if (*taken) {
      log::Info("checkpoint", {{"group", epochs_.group()}, {"snapshot", (*taken)->snapshot}});
    }
    return false;
  }
  if (absl::IsAlreadyExists(taken.status())) return true;
  forbidden_ = absl::IsPermissionDenied(taken.status());
  log::Fault(forbidden_ ? "no right to take snapshots: checkpoints are off"
                        : "a checkpoint failed and will be tried again",
             {{"group", epochs_.group()}, {"error", taken.status()}});
  return false;
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointTaker::Take(postgres::Connection& connection,
                                                                const state::GroupEpoch& under,
                                                                bool even_if_not_due) {
  ASSIGN_OR_RETURN(const bool locked, checkpoints_.TryLock(connection));
  if (!locked) return std::optional<Checkpoint>();
  const auto take = [&]() -> absl::StatusOr<std::optional<Checkpoint>> {
    ASSIGN_OR_RETURN(const auto list, checkpoints_.List(connection));
    const bool young = !list.empty() && list.front().epoch == under.epoch &&
                       Clock::System().Now() - list.front().taken_at < options_.every;
    if (young && !even_if_not_due) return std::optional<Checkpoint>();
    ASSIGN_OR_RETURN(const int64_t newest, checkpoints_.Newest(connection));
    ASSIGN_OR_RETURN(Checkpoint made, Make(connection, under, newest + 1));
    RETURN_IF_ERROR(TakeAwayOld(connection, under, made, list));
    return std::optional(std::move(made));
  };
  auto taken = take();
  checkpoints_.Unlock(connection).IgnoreError();
  return taken;
}

absl::StatusOr<Checkpoint> CheckpointTaker::Make(postgres::Connection& connection,
                                                 const state::GroupEpoch& under, int64_t number) {
  Checkpoint checkpoint{.number = number,
                        .snapshot = state::Checkpoints::SnapshotName(under.subscription, number),
                        .subscription = under.subscription,
                        .epoch = under.epoch,
                        .taken_at = Clock::System().Now()};
  RETURN_IF_ERROR(checkpoints_.Reserve(connection, checkpoint));
  const auto snapshot = admin_.CreateSnapshot(checkpoint.snapshot, under.subscription, {});
  // One that exists has a number that the database has forgotten: it must not know it again.
  if (absl::IsAlreadyExists(snapshot.status()) || absl::IsPermissionDenied(snapshot.status())) {
    RETURN_IF_ERROR(checkpoints_.Forget(connection, number));
  }
  if (!snapshot.ok()) return snapshot.status();
  checkpoint.expires_at = snapshot->expires;
  const auto record = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(postgres::Transaction transaction, epochs_.Begin(connection, under));
    RETURN_IF_ERROR(checkpoints_.Record(transaction, checkpoint));
    return transaction.Commit();
  };
  const absl::Status recorded = record();
  if (recorded.ok()) return checkpoint;
  // Under another epoch it belongs to nothing.
  if (state::IsStaleEpoch(recorded)) admin_.DeleteSnapshot(checkpoint.snapshot).IgnoreError();
  return recorded;
}

absl::Status CheckpointTaker::TakeAwayOld(postgres::Connection& connection,
                                          const state::GroupEpoch& under, const Checkpoint& made,
                                          const std::vector<Checkpoint>& list) {
  constexpr std::chrono::hours kHour(1);
  const WallTime now = Clock::System().Now();
  const auto same = [](const Checkpoint& a, const Checkpoint& b) {
    return a.epoch == b.epoch && a.subscription == b.subscription;
  };
  for (size_t i = 0; i < list.size(); ++i) {
    const Checkpoint& old = list[i];
    const Checkpoint& next = i == 0 ? made : list[i - 1];
    // A database that goes back to some moment needs the last one before it: until the next one is
    // as old as they are kept. Or that of its epoch's own Seek, before the epoch has one.
    if (under.seek.snapshot == old.snapshot) continue;
    // A project has 5,000 snapshots at most: of what is older than an hour, the first of each hour.
    // One of another epoch heals nothing of this one; to the last of an epoch the next may go back.
    const bool spare = now - old.taken_at >= kHour && i + 1 < list.size() && same(old, next) &&
                       same(old, list[i + 1]) &&
                       std::chrono::floor<std::chrono::hours>(old.taken_at) ==
                           std::chrono::floor<std::chrono::hours>(list[i + 1].taken_at);
    if (now - next.taken_at < options_.keep && !spare) continue;
    const absl::Status gone = admin_.DeleteSnapshot(old.snapshot);
    // Without the right to delete it, it goes when it expires.
    if (!gone.ok() && !absl::IsNotFound(gone) && !absl::IsPermissionDenied(gone)) return gone;
    RETURN_IF_ERROR(checkpoints_.Forget(connection, old.number));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::runner
