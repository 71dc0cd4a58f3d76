// Rebuild::Plan and Begin: what is possible, and the row that says what is wanted.
#include <fmt/format.h>

#include <regex>
#include <utility>

#include "offsets/seek_target.h"
#include "operations/rebuild.h"
#include "operations/shadow_tables.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "projections/declare/group_file.h"
#include "state/positions/checkpoints.h"
#include "state/positions/offsets.h"

namespace lockstep::operations {
namespace {

std::string ShadowSubscription(const std::string& live, int slot) {
  static const std::regex kSlot(R"(\.slot\d+$)");
  return fmt::format("{}.slot{}", std::regex_replace(live, kSlot, ""), slot);
}

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
  row.new_subscription = ShadowSubscription(live.subscription, row.new_slot);
  ASSIGN_OR_RETURN(
      const auto declared,
      projections::LoadGroup(
          parts_.file, {.table_suffix = "", .state_schema = parts_.state_schema, .code = {}}));
  row.tables = declared.projector->Tables();
  if (parts_.backfills.empty()) {
    RETURN_IF_ERROR(PlanSeek(subscription, plan));
    RETURN_IF_ERROR(CheckMissing(row, live.first_publish_time));
    RETURN_IF_ERROR(CountEvents(plan));
  } else {
    RETURN_IF_ERROR(PlanBackfills(plan, declared.projector->plan()));
    if (!parts_.options.snapshots.empty()) {
      row.new_snapshots = ShadowSubscription(parts_.options.snapshots, row.new_slot);
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
