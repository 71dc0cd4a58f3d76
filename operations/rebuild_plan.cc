// Rebuild::Plan and Begin: what is possible, and the row that says what is wanted.
#include <fmt/format.h>

#include <regex>

#include "offsets/seek_target.h"
#include "operations/rebuild.h"
#include "operations/shadow_tables.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "state/positions/checkpoints.h"
#include "state/positions/offsets.h"

namespace lockstep::operations {
namespace {

using state::SeekTarget;

std::string ShadowSubscription(const std::string& live, int slot) {
  static const std::regex kSlot(R"(\.slot\d+$)");
  return fmt::format("{}.slot{}", std::regex_replace(live, kSlot, ""), slot);
}

// A new subscription has what its topic keeps, and a snapshot's.
absl::Status PlanSeek(const SeekTarget& from, const pubsub::Subscription& live,
                      const state::Checkpoints& checkpoints, const std::string& group,
                      postgres::Connection& connection, pubsub::Admin& admin, RebuildPlan& plan) {
  const WallTime now = Clock::System().Now();
  const Millis history = live.topic_retention.value_or(Millis(0));
  ASSIGN_OR_RETURN(plan.row.seek,
                   offsets::Resolve(from, connection, checkpoints, now - history, now));
  if (plan.row.seek.time && history <= Millis(0)) {
    return FailedPrecondition(
        "{} keeps no history, so a new subscription of it starts empty: there is nothing to "
        "rebuild from. `lockstepctl offsets reset {} --to-earliest --empty` replays what {} itself "
        "keeps; or give the topic a retention (lockstepctl provision) and rebuild once it reaches "
        "back far enough",
        live.topic, group, live.name);
  }
  if (plan.row.seek.time) plan.earliest = now - history;
  return offsets::Check(plan.row.seek, admin, live, live.topic, now - history);
}

absl::Status CheckMissing(const RebuildRequest& request, const RebuildPlan& plan,
                          const std::optional<WallTime>& first) {
  if (request.accept_missing) return absl::OkStatus();
  if (plan.row.seek.snapshot) {
    return FailedPrecondition(
        "a snapshot brings back what was not acked when it was taken, and all since; what the "
        "read model holds from before would be missing in the new tables; add --accept-missing if "
        "that is wanted");
  }
  if (!first || first >= plan.row.seek.time) return absl::OkStatus();
  return FailedPrecondition(
      "the read model goes back to {}, the rebuild would begin at {}: what lies between would be "
      "missing in the new tables; add --accept-missing if that is wanted",
      FormatTimestamp(*first), plan.row.seek.ToString());
}

}  // namespace

absl::StatusOr<RebuildPlan> Rebuild::Plan(const RebuildRequest& request) {
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
  RebuildPlan plan;
  plan.row.old_slot = live.slot;
  plan.row.old_subscription = live.subscription;
  plan.row.accept_missing = request.accept_missing;
  plan.row.keep_old = request.keep_old;
  plan.row.operator_name = request.operator_name;
  plan.row.reason = request.reason;
  RETURN_IF_ERROR(PlanSeek(request.from, subscription, state::Checkpoints(schema_, group_),
                           group_.value(), connection_, admin, plan));
  RETURN_IF_ERROR(CheckMissing(request, plan, live.first_publish_time));
  if (request.keep_old > subscription.retention) {
    return InvalidArgument("the old slot can be kept {} at most, as long as {} keeps its messages",
                           FormatDuration(subscription.retention), live.subscription);
  }
  ASSIGN_OR_RETURN(const int newest, slots_.Newest(connection_));
  plan.row.new_slot = newest + 1;
  if (plan.row.seek.time) {
    ASSIGN_OR_RETURN(plan.events, inbox_.CountSince(connection_, group_, *plan.row.seek.time));
    ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
    ASSIGN_OR_RETURN(const auto offset, state::Offsets(schema_).Load(&transaction, group_));
    if (offset && *plan.row.seek.time > offset->position.publish_time) {
      return InvalidArgument("{} is after the group's own position, {}", plan.row.seek.ToString(),
                             FormatTimestamp(offset->position.publish_time));
    }
  }
  plan.row.new_subscription = ShadowSubscription(live.subscription, plan.row.new_slot);
  ASSIGN_OR_RETURN(const auto projector, parts_.projector(""));
  plan.row.tables = projector->Tables();
  ASSIGN_OR_RETURN(const auto obstacles,
                   ShadowTables(plan.row.tables).Obstacles(connection_, plan.row.shadow_suffix()));
  if (!obstacles.empty()) {
    return FailedPrecondition(
        "the tables can't be rebuilt beside the live ones:\n  {}\n`lockstepctl offsets reset {} "
        "--empty` rebuilds them in place",
        fmt::join(obstacles, "\n  "), group_.value());
  }
  const auto taken = admin.GetSubscription(plan.row.new_subscription);
  if (taken.ok()) {
    return FailedPrecondition("{} is there already; delete it first", plan.row.new_subscription);
  }
  if (!absl::IsNotFound(taken.status())) return taken.status();
  return plan;
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
