#include "operations/rebuild.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "offsets/lock_retry.h"
#include "operations/shadow_filler.h"
#include "operations/shadow_tables.h"
#include "platform/daemon/service_thread.h"
#include "platform/status.h"
#include "projections/declare/group_file.h"

namespace lockstep::operations {
namespace {

using state::RebuildRow;
using state::RebuildState;

// The longest that a batch of the live slot can have been under way.
constexpr std::chrono::minutes kLongestBatch{5};
constexpr std::chrono::seconds kCheckEvery{1};

}  // namespace

absl::Status Rebuild::LockDriver() {
  if (driver_) return absl::OkStatus();
  // The session of a process that has just ended may linger for a moment.
  for (int i = 0; i < 5 && !driver_; ++i) {
    if (i > 0) std::this_thread::sleep_for(Millis(200));
    ASSIGN_OR_RETURN(driver_, rebuilds_.TryLock(connection_));
  }
  if (driver_) return absl::OkStatus();
  return FailedPrecondition("another lockstepctl is at the rebuild of '{}'", group_.value());
}

absl::StatusOr<RebuildRow> Rebuild::Need() {
  RETURN_IF_ERROR(LockDriver());
  ASSIGN_OR_RETURN(auto row, rebuilds_.Load(connection_));
  if (!row) return NotFound("there is no rebuild of '{}'", group_.value());
  return *std::move(row);
}

absl::StatusOr<projections::GroupDeclaration> Rebuild::Declared() const {
  return projections::LoadGroup(
      parts_.file, {.table_suffix = "", .state_schema = parts_.state_schema, .code = {}});
}

absl::Status Rebuild::Resume(bool despite_differences, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const RebuildRow row, Need());
  if (row.state == RebuildState::kDiscarding) return Discard(row);
  if (row.state == RebuildState::kSwapped) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto declared, Declared());
  if (declared.projector->Mapping() != row.mapping) {
    return FailedPrecondition(
        "{0} has changed since the rebuild began, so a part of the new tables was filled by "
        "another "
        "mapping: `lockstepctl rebuild abort {1}`, and begin again; or put the file back as it was",
        parts_.file, GroupWords(row));
  }
  if (row.from_backfill()) RETURN_IF_ERROR(NeedSource(row));
  if (row.state == RebuildState::kPreparing) RETURN_IF_ERROR(Prepare(row));
  // Now that the subscription is there: what changes from here on is in the tail.
  if (row.from_backfill()) RETURN_IF_ERROR(StartBackfills(row));
  return Fill(row, despite_differences, stop);
}

absl::Status Rebuild::Subscribe(const std::string& name, const std::string& like) {
  pubsub::Admin& admin = parts_.transport.admin();
  ASSIGN_OR_RETURN(pubsub::Subscription wanted, admin.GetSubscription(like));
  wanted.name = name;
  const auto made = admin.CreateSubscription(wanted);
  return absl::IsAlreadyExists(made.status()) ? absl::OkStatus() : made.status();
}

absl::Status Rebuild::Prepare(const RebuildRow& row) {
  RETURN_IF_ERROR(Subscribe(row.new_subscription, row.old_subscription));
  RETURN_IF_ERROR(Reached("subscribed"));
  if (!row.new_snapshots.empty()) {
    RETURN_IF_ERROR(Subscribe(row.new_snapshots, parts_.options.snapshots));
    RETURN_IF_ERROR(Reached("subscribed.snapshots"));
  }
  const auto make_shadow = [&](postgres::Transaction& transaction) {
    RETURN_IF_ERROR(ShadowTables(row.tables).Create(transaction, row.shadow_suffix()));
    RETURN_IF_ERROR(rebuilds_.SetFilling(transaction, row));
    return Reached("making");
  };
  RETURN_IF_ERROR(Change(row.tables, make_shadow));
  listener_.note(fmt::format("made {} and {}", row.new_subscription,
                             fmt::join(ShadowTables(row.tables).names(row.shadow_suffix()), ", ")));
  return Reached("made");
}

absl::Status Rebuild::Fill(const RebuildRow& row, bool despite_differences,
                           const std::stop_token& stop) {
  ShadowFiller filler(parts_, row, connection_);
  SteadyTime checked;
  while (true) {
    RETURN_IF_ERROR(filler.Start());
    if (SleepUnlessStopped(stop, parts_.poll)) {
      return absl::CancelledError(
          fmt::format("interrupted; `lockstepctl rebuild resume {0}` goes on, `lockstepctl rebuild "
                      "abort {0}` undoes it",
                      GroupWords(row)));
    }
    RETURN_IF_ERROR(filler.Halted());
    RETURN_IF_ERROR(connection_.Run("SELECT 1"));  // silence would cost it the driver's lock
    ASSIGN_OR_RETURN(const int64_t total, filler.Total());
    const int64_t done = filler.done();
    listener_.progress(done, std::max(total, backfill_rows_));
    const bool nothing_comes = filler.NothingComes();
    const SteadyTime now = Clock::System().Steady();
    const bool maybe = nothing_comes || (total > 0 && done >= total) || filler.NearlyThere();
    if (!maybe || now - checked < kCheckEvery) continue;
    checked = now;
    ASSIGN_OR_RETURN(const bool caught_up, row.from_backfill()
                                               ? CaughtUpFromBackfills(row, despite_differences)
                                               : CaughtUp(row, nothing_comes));
    if (!caught_up) continue;
    RETURN_IF_ERROR(Reached("filled"));
    ASSIGN_OR_RETURN(const bool swapped, TrySwap(row, despite_differences, filler));
    if (swapped) return Reached("swapped");
  }
}

absl::StatusOr<bool> Rebuild::CaughtUp(const RebuildRow& row, bool nothing_comes) {
  const WallTime now = Clock::System().Now();
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  ASSIGN_OR_RETURN(const auto missing,
                   inbox_.CountMissing(transaction, group_, shadow_group_,
                                       row.seek.time.value_or(row.began_at), row.began_at));
  // What a snapshot brings back is not known before it has come.
  if (missing.all == 0 && (row.seek.time || nothing_comes)) {
    checked_until_ = now - kLongestBatch;
    return true;
  }
  // What is missing for so long under a load that never ends does not come either.
  if (missing.all != std::exchange(missing_, missing.all)) missing_since_ = now;
  if (missing.recent > 0 || !(nothing_comes || now - missing_since_ > parts_.patience))
    return false;
  if (!row.accept_missing) {
    return FailedPrecondition(
        "{} events that the live tables have did not come again from the topic; abort the rebuild "
        "and begin it with --accept-missing if that is wanted",
        missing.all);
  }
  if (missing.all != std::exchange(not_redelivered_, missing.all)) {
    listener_.note(fmt::format("{} events of the live tables did not come again", missing.all));
  }
  checked_until_ = row.began_at;
  return true;
}

absl::Status Rebuild::Change(std::vector<std::string> tables,
                             const std::function<absl::Status(postgres::Transaction&)>& change) {
  const auto tell = [this](const std::vector<std::string>& holders) {
    for (const std::string& holder : holders) listener_.note("waiting for " + holder);
  };
  return offsets::WithLockRetry(connection_, schema_, group_,
                                {.tables = std::move(tables), .on_wait = tell}, change);
}

}  // namespace lockstep::operations
