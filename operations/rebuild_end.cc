// Rebuild::Rollback, Finish and Abort: which slot goes, and how it goes without a trace.
#include <fmt/format.h>

#include "offsets/checkpoints.h"
#include "operations/rebuild.h"
#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::operations {
namespace {

using offsets::RebuildRow;
using offsets::RebuildState;

constexpr Millis kLockTry{1'000};

// The cleaner takes the generation's rows away. The slot is the group's own or the shadow group's.
constexpr std::string_view kRetireGeneration = R"(
INSERT INTO {state}.retired_generations (generation, group_name)
SELECT generation, $1 FROM {state}.slots WHERE group_name IN ($1, $2) AND slot = $3
ON CONFLICT DO NOTHING)";
constexpr std::string_view kDiscardDead = R"(
UPDATE {state}.dead_letters
   SET group_name = $1, state = 'discarded', resolved_at = now(), resolved_by = $4,
       note = concat_ws('; ', note, 'a rebuild took its place')
 WHERE generation IN (SELECT generation FROM {state}.slots
                       WHERE group_name IN ($1, $2) AND slot = $3)
   AND state IN ('dead', 'quarantined'))";
constexpr std::string_view kForgetSlot =
    "DELETE FROM {state}.slots WHERE group_name IN ($1, $2) AND slot = $3";
constexpr std::string_view kForgetOffsets = "DELETE FROM {state}.offsets WHERE group_name = $1";
constexpr std::string_view kForgetInstances = "DELETE FROM {state}.instances WHERE group_name = $1";
constexpr std::string_view kForgetGroup =
    "DELETE FROM {state}.consumer_groups WHERE group_name = $1";

}  // namespace

absl::Status Rebuild::MayRollback() {
  ASSIGN_OR_RETURN(const RebuildRow row, Need());
  if (row.state == RebuildState::kPreparing || row.state == RebuildState::kFilling) {
    return FailedPrecondition(
        "nothing was swapped yet; `lockstepctl rebuild abort {}` undoes the rebuild",
        group_.value());
  }
  if (row.state == RebuildState::kDiscarding && row.discard_slot == row.old_slot) {
    return FailedPrecondition("the old tables are being removed; there is no way back");
  }
  if (row.state != RebuildState::kSwapped) return absl::OkStatus();
  ASSIGN_OR_RETURN(const pubsub::Subscription old,
                   parts_.transport.admin().GetSubscription(row.old_subscription));
  if (Clock::System().Now() < *row.swapped_at + old.retention) return absl::OkStatus();
  return FailedPrecondition(
      "the old tables stand still since {}, and {} keeps messages for {}: what they lack is gone; "
      "`lockstepctl rebuild finish {}` removes them",
      FormatTimestamp(*row.swapped_at), row.old_subscription, FormatDuration(old.retention),
      group_.value());
}

absl::Status Rebuild::Rollback(const std::string& operator_name, const std::string& reason) {
  RETURN_IF_ERROR(MayRollback());
  ASSIGN_OR_RETURN(RebuildRow row, Need());
  if (row.state == RebuildState::kSwapped) {
    const RebuildSwap swap = Swapper(row);
    RETURN_IF_ERROR(RetryLocked(
        [&] { return swap.Back(connection_, operator_name, reason, kLockTry, at); }, row.tables));
    RETURN_IF_ERROR(Reached("rolled_back"));
    ASSIGN_OR_RETURN(row, Need());
  }
  return Discard(row);
}

absl::Status Rebuild::MayFinish(bool now) {
  ASSIGN_OR_RETURN(const RebuildRow row, Need());
  if (row.state == RebuildState::kPreparing || row.state == RebuildState::kFilling) {
    return FailedPrecondition("nothing was swapped yet; `lockstepctl rebuild resume {}` goes on",
                              group_.value());
  }
  if (row.state != RebuildState::kSwapped) return absl::OkStatus();
  const WallTime due = *row.swapped_at + row.keep_old;
  if (now || Clock::System().Now() >= due) return absl::OkStatus();
  return FailedPrecondition(
      "the old tables are kept until {}; --now removes them before, and then there is no rollback",
      FormatTimestamp(due));
}

absl::Status Rebuild::Finish(bool now) {
  RETURN_IF_ERROR(MayFinish(now));
  ASSIGN_OR_RETURN(RebuildRow row, Need());
  if (row.state == RebuildState::kSwapped) {
    RETURN_IF_ERROR(Decide(row, row.old_slot));
    ASSIGN_OR_RETURN(row, Need());
  }
  return Discard(row);
}

absl::Status Rebuild::MayAbort() {
  ASSIGN_OR_RETURN(const RebuildRow row, Need());
  if (row.state != RebuildState::kSwapped) return absl::OkStatus();
  return FailedPrecondition(
      "the new tables serve already; `lockstepctl rebuild rollback {0}` goes back to the old "
      "ones, `lockstepctl rebuild finish {0}` removes them",
      group_.value());
}

absl::Status Rebuild::Abort() {
  RETURN_IF_ERROR(MayAbort());
  ASSIGN_OR_RETURN(RebuildRow row, Need());
  if (row.state != RebuildState::kDiscarding) {
    RETURN_IF_ERROR(Decide(row, row.new_slot));
    ASSIGN_OR_RETURN(row, Need());
  }
  return Discard(row);
}

absl::Status Rebuild::Decide(const RebuildRow& row, int discard_slot) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  ASSIGN_OR_RETURN(const auto now, rebuilds_.Lock(transaction));
  if (!now || now->state != row.state) {
    return FailedPrecondition("the rebuild has gone on without this command");
  }
  RETURN_IF_ERROR(rebuilds_.SetDiscarding(transaction, discard_slot));
  RETURN_IF_ERROR(transaction.Commit());
  return Reached("decided");
}

// Database first: a slot whose subscription is gone could not be read, one without tables can't be
// chosen. Each part may have been done by a run before this one.
absl::Status Rebuild::Discard(const RebuildRow& row) {
  RETURN_IF_ERROR(
      RetryLocked([&] { return DropSlot(row); },
                  ShadowTables(row.tables).names(RebuildRow::Suffix(row.discard_slot))));
  RETURN_IF_ERROR(Reached("dropped"));
  const bool was_new = row.discard_slot == row.new_slot;
  RETURN_IF_ERROR(ForgetSubscription(was_new ? row.new_subscription : row.old_subscription));
  RETURN_IF_ERROR(Reached("unsubscribed"));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(rebuilds_.Audit(transaction, was_new ? "rebuild.undone" : "rebuild.finished",
                                  row.operator_name, row.reason));
  RETURN_IF_ERROR(rebuilds_.Remove(transaction));
  return transaction.Commit();
}

absl::Status Rebuild::DropSlot(const RebuildRow& row) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(
      transaction.Execute(fmt::format("SET LOCAL lock_timeout = {}", kLockTry.count())).status());
  const std::string& group = group_.value();
  const std::string shadow = rebuilds_.shadow_group().value();
  // Whoever may still be filling it finds its epoch gone.
  RETURN_IF_ERROR(offsets::Epochs(schema_, rebuilds_.shadow_group()).LockExclusively(transaction));
  using postgres::Params;
  const auto slot = [&] { return Params(group, shadow, row.discard_slot); };
  RETURN_IF_ERROR(transaction.Execute(schema_.Sql(kRetireGeneration), slot()).status());
  RETURN_IF_ERROR(
      transaction.Execute(schema_.Sql(kDiscardDead), slot().Add(row.operator_name)).status());
  RETURN_IF_ERROR(transaction.Execute(schema_.Sql(kForgetSlot), slot()).status());
  for (const std::string_view sql : {kForgetOffsets, kForgetInstances, kForgetGroup}) {
    RETURN_IF_ERROR(transaction.Execute(schema_.Sql(sql), shadow).status());
  }
  RETURN_IF_ERROR(ShadowTables(row.tables).Drop(transaction, RebuildRow::Suffix(row.discard_slot)));
  RETURN_IF_ERROR(Reached("dropping"));
  return transaction.Commit();
}

// With the checkpoints that were taken of it: nobody can seek to them any more.
absl::Status Rebuild::ForgetSubscription(const std::string& subscription) {
  pubsub::Admin& admin = parts_.transport.admin();
  const offsets::Checkpoints checkpoints(schema_, group_);
  ASSIGN_OR_RETURN(const auto list, checkpoints.List(connection_));
  for (const offsets::Checkpoint& checkpoint : list) {
    if (checkpoint.subscription != subscription) continue;
    const absl::Status gone = admin.DeleteSnapshot(checkpoint.snapshot);
    if (!gone.ok() && !absl::IsNotFound(gone)) return gone;
    RETURN_IF_ERROR(checkpoints.Forget(connection_, checkpoint.number));
  }
  const absl::Status gone = admin.DeleteSubscription(subscription);
  return absl::IsNotFound(gone) ? absl::OkStatus() : gone;
}

}  // namespace lockstep::operations
