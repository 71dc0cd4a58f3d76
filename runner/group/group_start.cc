#include "runner/group/group_start.h"

#include <algorithm>
#include <utility>

#include "offsets/seek_target.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep::runner {
namespace {

constexpr int kMaxReleaseAtStart = 10'000;

// A Seek before all that can be retained brings back all that is.
constexpr auto kLongAgo = std::chrono::hours(24 * 3650);

}  // namespace

GroupStart::GroupStart(GroupContext& group)
    : group_(group),
      options_(group.options),
      epochs_(group.epochs),
      seek_performer_(group.schema, group.epochs, group.environment.transport.admin(),
                      group.environment.instance,
                      {.takeover = options_.seek_takeover,
                       .valid = options_.ack_fence,
                       .fence = 2 * options_.ack_fence},
                      group.environment.seek_hooks) {}

std::optional<Obstacle> GroupStart::Prepare(postgres::Connection& connection, ReadyToRun& ready) {
  if (auto obstacle = CheckDatabase(connection)) return obstacle;
  if (auto obstacle = LoadEpoch(connection, ready)) return obstacle;
  if (auto obstacle = CheckDeadLetters()) return obstacle;
  if (auto obstacle = CheckSubscription(ready.under.subscription)) return obstacle;
  if (auto obstacle = group_.witness.Check(connection, ready.under)) return obstacle;
  if (!ready.under.seek_done) {
    if (auto obstacle = seek_performer_.Pass(connection, ready.under)) return obstacle;
  }
  if (!group_.batch.tracks_versions()) {
    const absl::Status forgotten =
        group_.batch.key_states().ForgetVersions(connection, ready.under.generation);
    if (!forgotten.ok()) return FromDatabase(forgotten);
  }
  auto release =
      group_.batch.key_states().Releasable(connection, ready.under.generation, kMaxReleaseAtStart);
  if (!release.ok()) return FromDatabase(release.status());
  ready.release = *std::move(release);
  return std::nullopt;
}

std::optional<Obstacle> GroupStart::CheckDatabase(postgres::Connection& connection) const {
  if (auto obstacle = FromDatabase(group_.schema.Check(connection))) return obstacle;
  return FromDatabase(group_.projector->Check(connection));
}

absl::StatusOr<state::SeekTarget> GroupStart::FirstSeek(postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const state::SeekTarget target, options_.ParseStartFrom());
  ASSIGN_OR_RETURN(const WallTime now, offsets::CautiousNow(connection));
  auto seek = offsets::Resolve(
      target, connection, state::Checkpoints(group_.schema, epochs_.group()), now - kLongAgo, now);
  if (absl::IsFailedPrecondition(seek.status())) {
    return FailedPrecondition("start_from is {}, and {}", options_.start_from,
                              MessageOf(seek.status()));
  }
  return seek;
}

std::optional<Obstacle> GroupStart::LoadEpoch(postgres::Connection& connection,
                                              ReadyToRun& ready) const {
  auto under = epochs_.Load(connection);
  if (absl::IsNotFound(under.status()) && !group_.environment.existing_only) {
    const auto first = FirstSeek(connection);
    if (!first.ok()) return FromDatabase(first.status());
    under = epochs_.LoadOrCreate(connection, options_.subscription, *first,
                                 group_.environment.instance);
  }
  if (absl::IsNotFound(under.status())) {
    return Obstacle{true, std::string(MessageOf(under.status()))};
  }
  if (!under.ok()) return FromDatabase(under.status());
  if (under->created) {
    log::Warning("the group starts for the first time and has no offset",
                 {{"group", options_.name},
                  {"subscription", under->subscription},
                  {"start_from", options_.start_from}});
  }
  if (under->subscription != options_.subscription && under->slot == 1) {
    return Obstacle{true, fmt::format("the group belongs to subscription {}, the configuration "
                                      "names {}; another subscription is another group",
                                      under->subscription, options_.subscription)};
  }
  ready.under = *std::move(under);
  return std::nullopt;
}

// What goes back to the bus settles no version: whatever waits for it would wait for ever.
std::optional<Obstacle> GroupStart::CheckDeadLetters() const {
  if (options_.dead_letter != DeadLetterTo::kPubsub || !group_.batch.tracks_versions()) {
    return std::nullopt;
  }
  return Obstacle{true,
                  "dead_letter: pubsub leaves gaps, behind which later events of an aggregate park "
                  "(merge, or on_gap: park) for ever; use dead_letter: postgres, or on_gap: apply"};
}

std::optional<Obstacle> GroupStart::CheckSubscription(const std::string& name) const {
  const auto subscription = group_.environment.transport.admin().GetSubscription(name);
  if (absl::IsNotFound(subscription.status())) {
    return Obstacle{true, fmt::format("subscription {} does not exist; create it, for instance "
                                      "with lockstepctl provision",
                                      name)};
  }
  if (absl::IsPermissionDenied(subscription.status())) {
    log::Warning("the subscription can't be read: its ordering and retention go unchecked",
                 {{"group", options_.name}, {"subscription", name}});
    return std::nullopt;
  }
  if (!subscription.ok()) {
    return Obstacle{false, fmt::format("subscription {} can't be looked up: {}", name,
                                       MessageOf(subscription.status()))};
  }
  if (subscription->detached) {
    return Obstacle{true, fmt::format("subscription {} is detached from its topic", name)};
  }
  if (options_.dead_letter == DeadLetterTo::kPubsub && subscription->ordering) {
    return Obstacle{true, fmt::format("dead_letter: pubsub works on unordered subscriptions only, "
                                      "and {} is ordered; use dead_letter: postgres",
                                      name)};
  }
  if (options_.dead_letter == DeadLetterTo::kPubsub && subscription->dead_letter_topic.empty()) {
    return Obstacle{true, fmt::format("dead_letter: pubsub leaves poison to the subscription's own "
                                      "dead-letter policy, and {} has none: it would come again "
                                      "for ever; give it one, or use dead_letter: postgres",
                                      name)};
  }
  const Millis window =
      std::max(subscription->retention, subscription->topic_retention.value_or(Millis(0)));
  if (options_.inbox_retention < window && !options_.force_inbox_retention) {
    return Obstacle{
        true, fmt::format("inbox_retention is {}, but {} can replay {}: older events would be "
                          "applied twice; raise it, or set force_inbox_retention",
                          FormatDuration(options_.inbox_retention), name, FormatDuration(window))};
  }
  return std::nullopt;
}

}  // namespace lockstep::runner
