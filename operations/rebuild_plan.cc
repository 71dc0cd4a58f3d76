// Rebuild::Plan and Begin: what is possible, and the row that says what is wanted.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "offsets/seek_target.h"
#include "operations/rebuild.h"
#include "operations/shadow_tables.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "projections/declare/group_file.h"
#include "pubsub/names.h"
#include "state/events/key_states.h"
#include "state/positions/checkpoints.h"
#include "state/positions/offsets.h"

namespace lockstep::operations {
namespace {

absl::Status CheckMissing(const state::RebuildRow& row, const std::optional<WallTime>& first) {
  if (row.accept_missing) return absl::OkStatus();
  if (row.seek.snapshot) {
    return FailedPrecondition(
        "a snapshot brings back what was not acked when it was taken, and all since; what the "
        "read model holds from before would be missing in the new tables; add --accept-missing if "
        "that is wanted");
  }
  if (!first || first >= row.seek.time) return absl::OkStatus();
  return FailedPrecondition(
      "the read model goes back to {}, the rebuild would begin at {}: what lies between would be "
      "missing in the new tables; --from backfill takes it from the rows of the source, or add "
      "--accept-missing if that is wanted",
      FormatTimestamp(*first), row.seek.ToString());
}

// A shadow calls no handler, so nothing waits in it: what waits in the live slot would count as
// handled after the swap, and nobody would be called.
absl::Status RefuseWhileEventsWait(postgres::Connection& connection, const state::Schema& schema,
                                   const ConsumerGroup& group) {
  ASSIGN_OR_RETURN(const auto waiting, state::KeyStates(schema).CountWaiting(connection, group));
  if (waiting.keys == 0) return absl::OkStatus();
  return FailedPrecondition(
      "'{0}' has handlers, and {1} of its aggregates have dead letters or events that wait: after "
      "a rebuild nobody would be called for those. Replay or discard them first (`lockstepctl "
      "dead-letters list`, `lockstepctl parked list`), then rebuild",
      group.value(), waiting.keys);
}

}  // namespace

// A new subscription has what its topic keeps, and a snapshot's.
absl::Status Rebuild::PlanSeek(const pubsub::Subscription& live, RebuildPlan& plan) {
  const WallTime now = Clock::System().Now();
  const Millis history = live.topic_retention.value_or(Millis(0));
  ASSIGN_OR_RETURN(plan.row.seek,
                   offsets::Resolve(plan.row.seek, connection_, state::Checkpoints(schema_, group_),
                                    now - history, now));
  if (plan.row.seek.time && history <= Millis(0)) {
    return FailedPrecondition(
        "{0} keeps no history, so a new subscription of it starts empty: there is nothing to "
        "rebuild from. `lockstepctl rebuild {1} --from backfill` fills the tables with the rows of "
        "their source; `lockstepctl offsets reset {1} --to-earliest --empty` replays what {2} "
        "itself keeps; or give the topic a retention (lockstepctl provision) and rebuild once it "
        "reaches back far enough",
        live.topic, group_.value(), live.name);
  }
  if (plan.row.seek.time) plan.earliest = now - history;
  return offsets::Check(plan.row.seek, parts_.transport.admin(), live, live.topic, now - history);
}

absl::StatusOr<RebuildPlan> Rebuild::Plan(state::RebuildRow wanted) {
  ASSIGN_OR_RETURN(const auto standing, rebuilds_.Load(connection_));
  if (standing) {
    return FailedPrecondition(
        "a rebuild of '{}' stands already ({}); `lockstepctl rebuild status {}` says how to go on",
        group_.value(), Name(standing->state), group_.value());
  }
  ASSIGN_OR_RETURN(const state::GroupEpoch live, live_.Load(connection_));
  pubsub::Admin& admin = parts_.transport.admin();
  ASSIGN_OR_RETURN(const pubsub::Subscription subscription,
                   admin.GetSubscription(live.subscription));
  RebuildPlan plan{.row = std::move(wanted)};
  state::RebuildRow& row = plan.row;
  row.old_slot = live.slot;
  row.old_subscription = live.subscription;
  if (row.keep_old > subscription.retention) {
    return InvalidArgument("the old slot can be kept {} at most, as long as {} keeps its messages",
                           FormatDuration(subscription.retention), live.subscription);
  }
  ASSIGN_OR_RETURN(const int newest, slots_.Newest(connection_));
  row.new_slot = newest + 1;
  row.new_subscription = pubsub::SlotSubscription(live.subscription, row.new_slot);
  ASSIGN_OR_RETURN(const auto declared, Declared());
  if (live.by_versions || parts_.options.inbox == runner::InboxMode::kAggregate) {
    RETURN_IF_ERROR(
        runner::CheckByVersions(group_.value(), parts_.options.on_gap, *declared.projector));
  }
  row.tables = declared.projector->Tables();
  row.mapping = declared.projector->Mapping();
  if (row.tables.empty()) {
    return FailedPrecondition(
        "group '{}' has no tables that could be rebuilt; `lockstepctl offsets reset` has its "
        "handlers called again",
        group_.value());
  }
  ASSIGN_OR_RETURN(const auto others, instances_.WithOtherMapping(connection_, row.mapping));
  if (!others.empty()) {
    return FailedPrecondition(
        "these runners have another mapping than {}: {}. After the swap they would write without "
        "what that file adds: give them the file, restart them (SIGHUP is not enough), then "
        "rebuild. One that was killed counts for a minute",
        parts_.file, fmt::join(others, ", "));
  }
  // The shadow gets the live table's columns: what the file wants of them must be there.
  if (const absl::Status fits = declared.projector->Check(connection_); !fits.ok()) {
    return FailedPrecondition(
        "{} does not fit the live tables, so nothing was made; change them (ALTER TABLE), then "
        "rebuild:\n{}",
        parts_.file, MessageOf(fits));
  }
  for (const std::string& column : parts_.ignored_columns) {
    const auto columns = declared.projector->Columns();
    if (std::ranges::find(columns, column) == columns.end()) {
      return InvalidArgument("--ignore-column: '{}' is no column that {} maps; they are {}", column,
                             parts_.file, fmt::join(columns, ", "));
    }
  }
  if (!declared.projector->Calls().empty()) {
    RETURN_IF_ERROR(RefuseWhileEventsWait(connection_, schema_, group_));
  }
  if (parts_.backfills.empty()) {
    RETURN_IF_ERROR(PlanSeek(subscription, plan));
    RETURN_IF_ERROR(CheckMissing(row, live.first_publish_time));
    RETURN_IF_ERROR(CountEvents(plan));
  } else {
    RETURN_IF_ERROR(PlanBackfills(plan, declared.projector->plan()));
    if (!parts_.options.snapshots.empty()) {
      row.new_snapshots = pubsub::SlotSubscription(parts_.options.snapshots, row.new_slot);
    }
  }
  ASSIGN_OR_RETURN(const auto obstacles,
                   ShadowTables(row.tables).Obstacles(connection_, row.shadow_suffix()));
  if (!obstacles.empty()) {
    return FailedPrecondition(
        "the tables can't be rebuilt beside the live ones:\n  {}\n`lockstepctl offsets reset {} "
        "--empty` rebuilds them in place",
        fmt::join(obstacles, "\n  "), group_.value());
  }
  for (const std::string& name : {row.new_subscription, row.new_snapshots}) {
    if (name.empty()) continue;
    const auto taken = admin.GetSubscription(name);
    if (taken.ok()) return FailedPrecondition("{} is there already; delete it first", name);
    if (!absl::IsNotFound(taken.status())) return taken.status();
  }
  return plan;
}

absl::Status Rebuild::CountEvents(RebuildPlan& plan) {
  const state::SeekTarget& seek = plan.row.seek;
  if (!seek.time) return absl::OkStatus();
  ASSIGN_OR_RETURN(plan.events, inbox_.CountSince(connection_, group_, *seek.time));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  ASSIGN_OR_RETURN(const auto offset, state::Offsets(schema_).Load(&transaction, group_));
  if (!offset || *seek.time <= offset->position.publish_time) return absl::OkStatus();
  return InvalidArgument("{} is after the group's own position, {}", seek.ToString(),
                         FormatTimestamp(offset->position.publish_time));
}

absl::Status Rebuild::Begin(const RebuildPlan& plan) {
  RETURN_IF_ERROR(LockDriver());
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(rebuilds_.Insert(transaction, plan.row));
  RETURN_IF_ERROR(
      rebuilds_.Audit(transaction, "rebuild.began", plan.row.operator_name, plan.row.reason));
  RETURN_IF_ERROR(transaction.Commit());
  return Reached("begun");
}

}  // namespace lockstep::operations
