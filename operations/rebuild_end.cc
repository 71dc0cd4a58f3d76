// Rebuild::Rollback, Finish and Abort: which slot goes, and how it goes without a trace.

#include "operations/rebuild.h"
#include "operations/shadow_tables.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "state/events/dead_letters.h"
#include "state/groups/instances.h"
#include "state/positions/checkpoints.h"
#include "state/positions/offsets.h"

namespace lockstep::operations {

using state::RebuildRow;
using state::RebuildState;

absl::StatusOr<RebuildRow> Rebuild::MayRollback() {
  ASSIGN_OR_RETURN(RebuildRow row, Need());
  if (row.state == RebuildState::kPreparing || row.state == RebuildState::kFilling) {
    return FailedPrecondition(
        "nothing was swapped yet; `lockstepctl rebuild abort {}` undoes the rebuild",
        group_.value());
  }
  if (row.state == RebuildState::kDiscarding && row.discard_slot == row.old_slot) {
    return FailedPrecondition("the old tables are being removed; there is no way back");
  }
  if (row.state != RebuildState::kSwapped) return row;
  ASSIGN_OR_RETURN(const pubsub::Subscription old,
                   parts_.transport.admin().GetSubscription(row.old_subscription));
  if (Clock::System().Now() < *row.swapped_at + old.retention) return row;
  return FailedPrecondition(
      "the old tables stand still since {}, and {} keeps messages for {}: what they lack is gone; "
      "`lockstepctl rebuild finish {}` removes them",
      FormatTimestamp(*row.swapped_at), row.old_subscription, FormatDuration(old.retention),
      group_.value());
}

absl::Status Rebuild::Rollback(const std::string& operator_name, const std::string& reason) {
  ASSIGN_OR_RETURN(RebuildRow row, MayRollback());
  if (row.state == RebuildState::kSwapped) {
    RETURN_IF_ERROR(Change(row.tables, [&](auto& transaction) {
      return SwapBack(transaction, operator_name, reason);
    }));
    RETURN_IF_ERROR(Reached("rolled_back"));
    row.discard_slot = row.new_slot;
  }
  return Discard(row);
}

absl::StatusOr<RebuildRow> Rebuild::MayFinish(bool now) {
  ASSIGN_OR_RETURN(RebuildRow row, Need());
  if (row.state == RebuildState::kPreparing || row.state == RebuildState::kFilling) {
    return FailedPrecondition("nothing was swapped yet; `lockstepctl rebuild resume {}` goes on",
                              group_.value());
  }
  if (row.state != RebuildState::kSwapped) return row;
  const WallTime due = *row.swapped_at + row.keep_old;
  if (now || Clock::System().Now() >= due) return row;
  return FailedPrecondition(
      "the old tables are kept until {}; --now removes them before, and then there is no rollback",
      FormatTimestamp(due));
}

absl::Status Rebuild::Finish(bool now) {
  ASSIGN_OR_RETURN(RebuildRow row, MayFinish(now));
  if (row.state == RebuildState::kSwapped) RETURN_IF_ERROR(Decide(row, row.old_slot));
  return Discard(row);
}

absl::StatusOr<RebuildRow> Rebuild::MayAbort(bool keep_backfills) {
  ASSIGN_OR_RETURN(RebuildRow row, Need());
  if (row.state == RebuildState::kDiscarding) return row;
  if (row.state != RebuildState::kSwapped) {
    if (!row.from_backfill() || keep_backfills || parts_.source != nullptr) return row;
    return FailedPrecondition(
        "{}, so that it is cancelled too; with --keep-backfill it goes on for other consumers",
        MessageOf(NeedSource(row)));
  }
  return FailedPrecondition(
      "the new tables serve already; `lockstepctl rebuild rollback {0}` goes back to the old "
      "ones, `lockstepctl rebuild finish {0}` removes them",
      group_.value());
}

absl::Status Rebuild::Abort(bool keep_backfills) {
  ASSIGN_OR_RETURN(RebuildRow row, MayAbort(keep_backfills));
  if (row.state == RebuildState::kDiscarding) return Discard(row);
  if (row.from_backfill() && !keep_backfills) RETURN_IF_ERROR(CancelBackfills(row));
  RETURN_IF_ERROR(Decide(row, row.new_slot));
  return Discard(row);
}

absl::Status Rebuild::Decide(RebuildRow& row, int discard_slot) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(LockIn(transaction, row.state).status());
  RETURN_IF_ERROR(rebuilds_.SetDiscarding(transaction, discard_slot));
  RETURN_IF_ERROR(transaction.Commit());
  row.discard_slot = discard_slot;
  return Reached("decided");
}

// Database first: a slot whose subscription is gone could not be read, one without tables can't be
// chosen. Each part may have been done by a run before this one.
absl::Status Rebuild::Discard(const RebuildRow& row) {
  RETURN_IF_ERROR(Change(ShadowTables(row.tables).names(RebuildRow::Suffix(row.discard_slot)),
                         [&](auto& transaction) { return DropSlot(transaction, row); }));
  RETURN_IF_ERROR(Reached("dropped"));
  const bool was_new = row.discard_slot == row.new_slot;
  RETURN_IF_ERROR(ForgetSubscription(was_new ? row.new_subscription : row.old_subscription));
  // The group reads the one that its configuration names, whichever slot serves.
  if (!row.new_snapshots.empty()) RETURN_IF_ERROR(ForgetSubscription(row.new_snapshots));
  RETURN_IF_ERROR(Reached("unsubscribed"));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(rebuilds_.Audit(transaction, was_new ? "rebuild.undone" : "rebuild.finished",
                                  row.operator_name, row.reason));
  RETURN_IF_ERROR(rebuilds_.Remove(transaction));
  return transaction.Commit();
}

absl::Status Rebuild::DropSlot(postgres::Transaction& transaction, const RebuildRow& row) {
  // Whoever may still be filling it finds its epoch gone.
  RETURN_IF_ERROR(shadow_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(const auto generation,
                   slots_.Remove(transaction, shadow_group_, row.discard_slot));
  if (generation) {
    RETURN_IF_ERROR(
        state::DeadLetters(schema_, group_)
            .DiscardAll(transaction, *generation, row.operator_name, "a rebuild took its place"));
  }
  RETURN_IF_ERROR(state::Offsets(schema_).ForgetAll(transaction, shadow_group_));
  RETURN_IF_ERROR(state::Instances(schema_, shadow_group_).ForgetAll(transaction));
  RETURN_IF_ERROR(shadow_.Forget(transaction));
  RETURN_IF_ERROR(ShadowTables(row.tables).Drop(transaction, RebuildRow::Suffix(row.discard_slot)));
  return Reached("dropping");
}

// With the checkpoints that were taken of it: nobody can seek to them any more.
absl::Status Rebuild::ForgetSubscription(const std::string& subscription) {
  pubsub::Admin& admin = parts_.transport.admin();
  const state::Checkpoints checkpoints(schema_, group_);
  ASSIGN_OR_RETURN(const auto list, checkpoints.List(connection_));
  for (const state::Checkpoint& checkpoint : list) {
    if (checkpoint.subscription != subscription) continue;
    const absl::Status gone = admin.DeleteSnapshot(checkpoint.snapshot);
    if (!gone.ok() && !absl::IsNotFound(gone)) return gone;
    RETURN_IF_ERROR(checkpoints.Forget(connection_, checkpoint.number));
  }
  const absl::Status gone = admin.DeleteSubscription(subscription);
  return absl::IsNotFound(gone) ? absl::OkStatus() : gone;
}

}  // namespace lockstep::operations
