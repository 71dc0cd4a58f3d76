#include "runner/seek/seek_performer.h"

#include <utility>

#include "offsets/reset.h"
#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep::runner {

SeekPerformer::SeekPerformer(const state::Schema& schema, const state::Epochs& epochs,
                             pubsub::Admin& admin, std::string instance, SeekTiming timing,
                             SeekHooks hooks)
    : schema_(schema),
      epochs_(epochs),
      admin_(admin),
      instance_(std::move(instance)),
      timing_(timing),
      hooks_(std::move(hooks)) {}

std::optional<Obstacle> SeekPerformer::Pass(postgres::Connection& connection,
                                            const state::GroupEpoch& under) {
  const SteadyTime before = Clock::System().Steady();
  const auto claimed = epochs_.ClaimSeek(connection, under, instance_, timing_.takeover);
  if (!claimed.ok()) return FromDatabase(claimed.status());
  if (!*claimed) {
    return Obstacle{false, fmt::format("the Seek of epoch {} waits for late acks of the epoch "
                                       "before, or another instance performs it",
                                       under.epoch)};
  }
  if (hooks_.after_claim) hooks_.after_claim();
  if (Clock::System().Steady() - before > timing_.valid) {
    return Obstacle{false, "the claim on the Seek grew old before the Seek was sent"};
  }
  if (hooks_.before_seek) hooks_.before_seek();
  const absl::Status sought = Seek(under);
  if (!sought.ok()) {
    epochs_.ReleaseSeek(connection, under, instance_).IgnoreError();
    const bool passes = absl::IsUnavailable(sought) || absl::IsDeadlineExceeded(sought);
    return Obstacle{!passes,
                    fmt::format("the Seek of epoch {} failed: {}", under.epoch, MessageOf(sought))};
  }
  const auto marked = epochs_.MarkSeekDone(connection, under, instance_);
  if (!marked.ok()) return FromDatabase(marked.status());
  if (!*marked) return Repair(connection, under);
  log::Info("sought", {{"group", epochs_.group()}, {"epoch", under.epoch}});
  return std::nullopt;
}

absl::Status SeekPerformer::Seek(const state::GroupEpoch& under) {
  const state::SeekTarget& seek = under.seek;
  return seek.time ? admin_.SeekToTime(under.subscription, *seek.time)
                   : admin_.SeekToSnapshot(under.subscription, *seek.snapshot);
}

Obstacle SeekPerformer::Repair(postgres::Connection& connection, const state::GroupEpoch& under) {
  const auto now = epochs_.Load(connection);
  if (!now.ok()) return *FromDatabase(now.status());
  if (now->epoch == under.epoch && now->token == under.token) {
    return {false, "another instance took the Seek over; the same one twice does no harm"};
  }
  if (now->seek.kind == state::SeekTarget::Kind::kNone || now->subscription != under.subscription) {
    return {false, "the group has moved on"};
  }
  log::Error("a Seek of an older epoch went out late: the present one's is asked for again",
             {{"group", epochs_.group()}, {"old_epoch", under.epoch}, {"epoch", now->epoch}});
  const offsets::Resets resets(schema_, epochs_.group());
  const auto repaired = resets.Run(
      connection,
      {.seek = now->seek,
       .mode = now->overwrite_until ? offsets::ResetMode::kOverwrite : offsets::ResetMode::kKeep,
       .overwrite_until = now->overwrite_until,
       .skip_before = now->skip_before,
       .operator_name = instance_,
       .reason = fmt::format("a Seek of epoch {} went out late", under.epoch),
       .action = "seek.repaired",
       .fence = timing_.fence,
       .takeover = timing_.takeover});
  if (!repaired.ok()) return *FromDatabase(repaired.status());
  return {false, "a late Seek is being repaired"};
}

}  // namespace lockstep::runner
