#include "offsets/seek_target.h"

#include <algorithm>
#include <utility>

#include "platform/duration.h"
#include "platform/status.h"
#include "pubsub/names.h"

namespace lockstep::offsets {

using state::SeekTarget;
using Kind = SeekTarget::Kind;

std::optional<SeekTarget> ParseSeekTarget(std::string_view text, std::string_view project) {
  if (text == "committed") return SeekTarget();
  if (text == "earliest") return SeekTarget{.kind = Kind::kEarliest};
  if (text == "latest") return SeekTarget{.kind = Kind::kLatest};
  if (text == "checkpoint") return SeekTarget{.kind = Kind::kCheckpoint};
  constexpr std::string_view kSnapshot = "snapshot:";
  if (text.starts_with(kSnapshot) && text.size() > kSnapshot.size()) {
    return SeekTarget::ToSnapshot(pubsub::SnapshotName(project, text.substr(kSnapshot.size())));
  }
  const auto time = ParseTimestamp(text);
  if (!time.ok()) return std::nullopt;
  return SeekTarget::To(*time);
}

absl::StatusOr<SeekTarget> Resolve(const SeekTarget& target, postgres::Connection& connection,
                                   const state::Checkpoints& checkpoints, WallTime earliest,
                                   WallTime latest) {
  switch (target.kind) {
    case Kind::kEarliest:
      return SeekTarget::To(earliest);
    case Kind::kLatest:
      return SeekTarget::To(latest);
    case Kind::kCheckpoint: {
      ASSIGN_OR_RETURN(auto list, checkpoints.List(connection));
      if (list.empty()) return FailedPrecondition("no checkpoint is recorded");
      return SeekTarget::ToSnapshot(std::move(list.front().snapshot));
    }
    case Kind::kNone:
    case Kind::kTime:
    case Kind::kSnapshot:
      break;
  }
  return target;
}

absl::StatusOr<WallTime> CautiousNow(postgres::Connection& connection) {
  ASSIGN_OR_RETURN(const postgres::Result theirs, connection.Execute("SELECT clock_timestamp()"));
  return std::min(Clock::System().Now(), theirs.Time(0, 0));
}

absl::Status Check(const SeekTarget& target, pubsub::Admin& admin,
                   const pubsub::Subscription& subscription, std::string_view keeper,
                   WallTime earliest) {
  if (target.time && *target.time < earliest) {
    return FailedPrecondition("{} is outside the retention of {}; the earliest possible is {}",
                              FormatTimestamp(*target.time), keeper, FormatTimestamp(earliest));
  }
  if (!target.snapshot) return absl::OkStatus();
  const auto found = admin.GetSnapshot(*target.snapshot);
  if (absl::IsNotFound(found.status())) {
    return NotFound("snapshot {} does not exist, or has expired", *target.snapshot);
  }
  if (absl::IsPermissionDenied(found.status())) return absl::OkStatus();
  if (!found.ok()) return found.status();
  if (!subscription.topic.empty() && found->topic != subscription.topic) {
    return InvalidArgument("snapshot {} is of {}, and {} of {}", *target.snapshot, found->topic,
                           subscription.name, subscription.topic);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::offsets
