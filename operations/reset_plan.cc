#include "operations/reset_plan.h"

#include <algorithm>
#include <random>

#include "offsets/seek_target.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "state/events/inbox.h"

namespace lockstep::operations {
namespace {

using offsets::ResetMode;
using state::SeekTarget;

// How far back this subscription can go: acked messages that it keeps, or that its topic keeps.
std::optional<Millis> Window(const pubsub::Subscription& subscription) {
  std::optional<Millis> window;
  if (subscription.retain_acked) window = subscription.retention;
  if (subscription.topic_retention) {
    window = std::max(window.value_or(Millis(0)), *subscription.topic_retention);
  }
  return window;
}

// On a subscription of its own, for a Seek can't be tried without being done.
absl::Status TrySeek(const pubsub::Subscription& like, pubsub::Admin& admin, WallTime now) {
  const pubsub::Subscription probe{
      .name = fmt::format("{}.probe-{:08x}", like.name, std::random_device()()),
      .topic = like.topic,
      .ordering = like.ordering,
      .retain_acked = like.retain_acked};
  RETURN_IF_ERROR(admin.CreateSubscription(probe).status());
  const absl::Status seek_done = admin.SeekToTime(probe.name, now);
  admin.DeleteSubscription(probe.name).IgnoreError();
  if (!absl::IsUnimplemented(seek_done)) return seek_done;
  return MakeStatus(absl::StatusCode::kUnimplemented,
                    "this emulator can't seek to a time on {} subscriptions, so nothing was "
                    "changed; --to-snapshot may work, and lockstep-emulator can do both",
                    like.ordering ? "ordered" : "unordered");
}

// Refuses what this subscription can't bring again.
absl::Status CheckReplay(const ResetWish& wish, const SeekTarget& seek,
                         const pubsub::Subscription& subscription, WallTime now) {
  if (seek.time > now) {
    return InvalidArgument("{} is in the future; --to-latest leaves out everything until now",
                           seek.ToString());
  }
  if (wish.target.kind == SeekTarget::Kind::kLatest || Window(subscription)) {
    return absl::OkStatus();
  }
  return FailedPrecondition(
      "nothing can be replayed: {} keeps no acked messages: turn retain_acked_messages on "
      "(lockstepctl provision), from then on it can",
      subscription.name);
}

absl::Status CheckEmptying(const ResetWish& wish, const ResetPlan& plan) {
  if (wish.mode != ResetMode::kEmpty || wish.accept_missing) return absl::OkStatus();
  if (plan.seek.snapshot) {
    return FailedPrecondition(
        "a snapshot brings back what was not acked when it was taken, and "
        "--empty would delete the rest for good; add --accept-missing if that "
        "is wanted");
  }
  const std::optional<WallTime>& first = plan.before.first_publish_time;
  if (!first || first >= plan.seek.time) return absl::OkStatus();
  return FailedPrecondition(
      "--empty would delete what can't be replayed: the read model goes back to {}, the replay to "
      "{}; add --accept-missing if that is wanted",
      FormatTimestamp(*first), plan.seek.ToString());
}

}  // namespace

absl::StatusOr<ResetPlan> PlanReset(postgres::Connection& connection, const state::Schema& schema,
                                    const ConsumerGroup& group,
                                    const std::vector<std::string>& tables, pubsub::Admin& admin,
                                    const ResetWish& wish, WallTime now) {
  ResetPlan plan;
  ASSIGN_OR_RETURN(plan.before, state::Epochs(schema, group).Load(connection));
  {
    ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
    ASSIGN_OR_RETURN(plan.offset, state::Offsets(schema).Load(&transaction, group));
  }
  auto subscription = admin.GetSubscription(plan.before.subscription);
  const bool readable = subscription.ok();
  if (!readable && !absl::IsPermissionDenied(subscription.status())) return subscription.status();
  if (!readable) {
    subscription = pubsub::Subscription{.name = plan.before.subscription,
                                        .retain_acked = true,
                                        .retention = std::chrono::hours(31 * 24)};
  }
  const WallTime earliest = now - Window(*subscription).value_or(Millis(0));
  ASSIGN_OR_RETURN(plan.seek, offsets::Resolve(wish.target, connection,
                                               state::Checkpoints(schema, group), earliest, now));
  if (plan.seek.time) RETURN_IF_ERROR(CheckReplay(wish, plan.seek, *subscription, now));
  RETURN_IF_ERROR(offsets::Check(plan.seek, admin, *subscription, subscription->name, earliest));
  if (plan.seek.time) {
    if (readable) plan.earliest = earliest;
    if (wish.emulator && readable) RETURN_IF_ERROR(TrySeek(*subscription, admin, now));
    // Events that came after the target come again.
    ASSIGN_OR_RETURN(plan.redelivered,
                     state::Inbox(schema).CountSince(connection, group, *plan.seek.time));
  }
  RETURN_IF_ERROR(CheckEmptying(wish, plan));
  if (wish.mode != ResetMode::kEmpty) return plan;
  for (const std::string& table : tables) {
    ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
    ASSIGN_OR_RETURN(const int64_t rows,
                     connection.Number(fmt::format("SELECT count(*) FROM {}", name.Quoted())));
    plan.emptied.emplace_back(table, rows);
  }
  return plan;
}

}  // namespace lockstep::operations
