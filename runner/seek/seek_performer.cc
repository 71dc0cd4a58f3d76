#include "runner/seek/seek_performer.h"

#include "offsets/reset.h"
#include "platform/boot_time.h"
#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep::runner {

absl::Status SeekPerformer::Pass(postgres::Connection& connection,
                                 const state::GroupEpoch& under) const {
  const SteadyTime before = BootTime();  // the fence goes on while the machine sleeps
  ASSIGN_OR_RETURN(const bool claimed, epochs.ClaimSeek(connection, under, instance, takeover));
  if (!claimed) {
    return Unavailable(
        "the Seek of epoch {} waits for late acks of the epoch before, or another instance "
        "performs it",
        under.epoch);
  }
  if (hooks.after_claim) hooks.after_claim();
  if (BootTime() - before > ack_fence) {
    return Unavailable("the claim on the Seek grew old before the Seek was sent");
  }
  if (hooks.before_seek) hooks.before_seek();
  const absl::Status seek_done =
      under.seek.time ? admin.SeekToTime(under.subscription, *under.seek.time)
                      : admin.SeekToSnapshot(under.subscription, *under.seek.snapshot);
  if (!seek_done.ok()) {
    epochs.ReleaseSeek(connection, under, instance).IgnoreError();
    const bool passes = absl::IsUnavailable(seek_done) || absl::IsDeadlineExceeded(seek_done);
    return MakeStatus(
        passes ? absl::StatusCode::kUnavailable : absl::StatusCode::kFailedPrecondition,
        "the Seek of epoch {} failed: {}", under.epoch, MessageOf(seek_done));
  }
  ASSIGN_OR_RETURN(const bool marked, epochs.MarkSeekDone(connection, under, instance));
  if (!marked) return Repair(connection, under);
  log::Info("seek done", {{"group", epochs.group()}, {"epoch", under.epoch}});
  return absl::OkStatus();
}

absl::Status SeekPerformer::Repair(postgres::Connection& connection,
                                   const state::GroupEpoch& under) const {
  ASSIGN_OR_RETURN(const state::GroupEpoch now, epochs.Load(connection));
  if (now.epoch == under.epoch && now.token == under.token) {
    return Unavailable("another instance took the Seek over; the same one twice does no harm");
  }
  if (now.seek.kind == state::SeekTarget::Kind::kNone || now.subscription != under.subscription) {
    return Unavailable("the group has moved on");
  }
  log::Error("a Seek of an older epoch went out late: the present one's is asked for again",
             {{"group", epochs.group()}, {"old_epoch", under.epoch}, {"epoch", now.epoch}});
  const offsets::Resets resets(schema, epochs.group());
  const auto repaired = resets.Run(
      connection,
      {.seek = now.seek,
       .mode = now.overwrite_until ? offsets::ResetMode::kOverwrite : offsets::ResetMode::kKeep,
       .overwrite_until = now.overwrite_until,
       .skip_before = now.skip_before,
       .operator_name = instance,
       .reason = fmt::format("a Seek of epoch {} went out late", under.epoch),
       .action = "seek.repaired",
       .fence = 2 * ack_fence,
       .takeover = takeover});
  RETURN_IF_ERROR(repaired.status());
  return Unavailable("a late Seek is being repaired");
}

}  // namespace lockstep::runner
