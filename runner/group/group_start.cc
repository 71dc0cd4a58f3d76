#include "runner/group/group_start.h"

#include <algorithm>

#include "offsets/seek_target.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/pooler.h"
#include "pubsub/names.h"
#include "state/groups/slots.h"

namespace lockstep::runner {
namespace {

constexpr int kMaxReleaseAtStart = 10'000;

// A Seek before all that can be retained brings back all that is.
constexpr auto kLongAgo = std::chrono::hours(24 * 3650);

absl::StatusOr<state::SeekTarget> FirstSeek(const GroupContext& group,
                                            postgres::Connection& connection) {
  ASSIGN_OR_RETURN(const state::SeekTarget target, group.options.ParseStartFrom());
  ASSIGN_OR_RETURN(const WallTime now, offsets::CautiousNow(connection));
  auto seek =
      offsets::Resolve(target, connection, state::Checkpoints(group.schema, group.epochs.group()),
                       now - kLongAgo, now);
  if (absl::IsFailedPrecondition(seek.status())) {
    return FailedPrecondition("start_from is {}, and {}", group.options.start_from,
                              MessageOf(seek.status()));
  }
  return seek;
}

absl::StatusOr<state::GroupEpoch> LoadEpoch(const GroupContext& group,
                                            postgres::Connection& connection) {
  const GroupOptions& options = group.options;
  auto under = group.epochs.Load(connection);
  if (absl::IsNotFound(under.status()) && !group.environment.existing_only) {
    ASSIGN_OR_RETURN(const state::SeekTarget first, FirstSeek(group, connection));
    under = group.epochs.LoadOrCreate(connection, options.subscription, first,
                                      group.environment.instance);
  }
  RETURN_IF_ERROR(under.status());
  if (under->created) {
    log::Warning("the group starts for the first time and has no offset",
                 {{"group", options.name},
                  {"subscription", under->subscription},
                  {"start_from", options.start_from}});
  }
  // Which slot's subscription is read, the database knows.
  const std::string declared = pubsub::DeclaredSubscription(under->subscription);
  if (declared != pubsub::DeclaredSubscription(options.subscription)) {
    return FailedPrecondition(
        "the group belongs to subscription {}, the configuration names {}; another subscription is "
        "another group",
        declared, options.subscription);
  }
  return under;
}

// What the slot's generation began with counts; what the configuration says, from the next one on.
absl::Status NoteInbox(const GroupContext& group, postgres::Connection& connection,
                       state::GroupEpoch& under) {
  const GroupOptions& options = group.options;
  auto wanted = options.inbox == InboxMode::kAggregate ? state::InboxKind::kAggregate
                : options.on_gap == OnGap::kPark       ? state::InboxKind::kFollowed
                                                       : state::InboxKind::kEvent;
  // A rebuild's is compared event by event while it can be; the swap lets it go by versions.
  if (options.shadow && wanted == state::InboxKind::kAggregate) {
    wanted = state::InboxKind::kFollowed;
  }
  ASSIGN_OR_RETURN(
      under.by_versions,
      state::Slots(group.schema, group.epochs.group()).NoteInbox(connection, under.slot, wanted));
  RETURN_IF_ERROR(group.batch.CheckInbox(under));
  if (!options.shadow && under.by_versions != (options.inbox == InboxMode::kAggregate)) {
    log::Warning(
        "the group goes on with the inbox that its read model was begun with; a rebuild, "
        "or a reset that empties, begins with the configured one",
        {{"group", options.name}, {"inbox", under.by_versions ? "aggregate" : "event"}});
  }
  return absl::OkStatus();
}

// Answers its topic; empty = it can't be read.
absl::StatusOr<std::string> CheckSubscription(const GroupContext& group, const std::string& name,
                                              bool by_versions) {
  const GroupOptions& options = group.options;
  const auto subscription = group.environment.transport.admin().GetSubscription(name);
  if (absl::IsNotFound(subscription.status())) {
    return NotFound(
        "subscription {} does not exist; create it, for instance with lockstepctl provision", name);
  }
  if (absl::IsPermissionDenied(subscription.status())) {
    log::Warning("the subscription can't be read: its ordering and retention go unchecked",
                 {{"group", options.name}, {"subscription", name}});
    return std::string();
  }
  if (!subscription.ok()) {
    return Unavailable("subscription {} can't be looked up: {}", name,
                       MessageOf(subscription.status()));
  }
  if (subscription->detached) {
    return FailedPrecondition("subscription {} is detached from its topic", name);
  }
  if (options.dead_letter == DeadLetterTo::kPubsub && subscription->ordering) {
    return FailedPrecondition(
        "dead_letter: pubsub works on unordered subscriptions only, and {} is ordered; use "
        "dead_letter: postgres",
        name);
  }
  if (options.dead_letter == DeadLetterTo::kPubsub && subscription->dead_letter_topic.empty()) {
    return FailedPrecondition(
        "dead_letter: pubsub leaves poison to the subscription's own dead-letter policy, and {} "
        "has none: it would come again for ever; give it one, or use dead_letter: postgres",
        name);
  }
  const Millis window =
      std::max(subscription->retention, subscription->topic_retention.value_or(Millis(0)));
  if (options.inbox_retention < window && !options.force_inbox_retention && !by_versions) {
    return FailedPrecondition(
        "inbox_retention is {}, but {} can replay {}: older events would be applied twice; raise "
        "it, or set force_inbox_retention",
        FormatDuration(options.inbox_retention), name, FormatDuration(window));
  }
  return subscription->topic;
}

}  // namespace

absl::Status MakeReady(GroupContext& group, postgres::Connection& connection, ReadyToRun& ready) {
  const GroupOptions& options = group.options;
  const state::KeyStates& keys = group.batch.key_states();
  RETURN_IF_ERROR(postgres::RefuseTransactionPooler(connection, group.connection()));
  RETURN_IF_ERROR(group.schema.Check(connection));
  RETURN_IF_ERROR(group.projector->Check(connection));
  if (!options.shadow) RETURN_IF_ERROR(group.handlers.Open());
  ASSIGN_OR_RETURN(ready.under, LoadEpoch(group, connection));
  if (!ready.under.paused.empty()) return absl::CancelledError(ready.under.paused);
  // What goes back to the bus settles no version: whatever waits for it would wait for ever.
  if (options.dead_letter == DeadLetterTo::kPubsub && group.batch.minds_gaps()) {
    return FailedPrecondition(
        "dead_letter: pubsub leaves gaps, behind which later events of an aggregate park (merge, "
        "or on_gap: park) for ever; use dead_letter: postgres, or on_gap: apply");
  }
  RETURN_IF_ERROR(NoteInbox(group, connection, ready.under));
  const bool by_versions = ready.under.by_versions;
  ASSIGN_OR_RETURN(ready.topic, CheckSubscription(group, ready.under.subscription, by_versions));
  if (!options.snapshots.empty()) {
    RETURN_IF_ERROR(CheckSubscription(group, options.snapshots, by_versions).status());
  }
  RETURN_IF_ERROR(group.witness.Check(connection, ready.under, options.lanes));
  if (!ready.under.seek_done) {
    const SeekPerformer performer{.schema = group.schema,
                                  .epochs = group.epochs,
                                  .admin = group.environment.transport.admin(),
                                  .instance = group.environment.instance,
                                  .ack_fence = options.ack_fence,
                                  .takeover = options.seek_takeover,
                                  .hooks = group.environment.seek_hooks};
    RETURN_IF_ERROR(performer.Pass(connection, ready.under));
  }
  if (!group.batch.tracks_versions()) {
    RETURN_IF_ERROR(keys.ForgetVersions(connection, ready.under.generation));
  }
  RETURN_IF_ERROR(group.epochs.NoteNeeds(connection, group.batch.tracks_versions(),
                                         group.projector->MindsReplays()));
  RETURN_IF_ERROR(state::Slots(group.schema, group.epochs.group())
                      .NoteColumns(connection, ready.under.slot, group.projector->Columns()));
  ASSIGN_OR_RETURN(ready.release, keys.Releasable(connection, ready.under.generation,
                                                  kMaxReleaseAtStart, group.batch.minds_gaps()));
  return absl::OkStatus();
}

}  // namespace lockstep::runner
