#include "offsets/epoch.h"

#include <fmt/format.h>

#include <utility>

#include "platform/defect.h"
#include "platform/status.h"

namespace lockstep::offsets {
namespace {

constexpr std::string_view kLoad = R"(
SELECT g.group_id, g.epoch, g.epoch_token, s.slot, s.generation, s.subscription,
       g.seek_kind, g.seek_time, g.seek_snapshot, g.seek_state = 'done',
       g.skip_before, g.overwrite_until, s.first_publish_time,
       hashtextextended('lockstep.epoch.' || $2 || '.' || g.group_name, 0)
  FROM {state}.consumer_groups g
  JOIN {state}.slots s ON s.group_name = g.group_name AND s.slot = g.active_slot
 WHERE g.group_name = $1)";

// The slot comes with the row: any number of runners may start a group at once.
constexpr std::string_view kCreate = R"(
WITH made AS (
  INSERT INTO {state}.consumer_groups
         (group_name, seek_kind, seek_time, seek_snapshot, seek_state, skip_before, updated_by)
  VALUES ($1, $3, $4, $5, CASE WHEN $3 = 'none' THEN 'done' ELSE 'wanted' END, $4, $6)
  ON CONFLICT DO NOTHING
  RETURNING group_name)
INSERT INTO {state}.slots (group_name, slot, subscription)
SELECT group_name, 1, $2 FROM made)";

constexpr std::string_view kLock = R"(
SELECT pg_advisory_xact_lock(hashtextextended('lockstep.epoch.' || $2 || '.' || $1, 0)))";

constexpr std::string_view kClaimSeek = R"(
UPDATE {state}.consumer_groups
   SET seek_state = 'performing', seek_owner = $3, seek_started_at = clock_timestamp()
 WHERE group_name = $1 AND epoch = $2 AND epoch_token = $5::uuid
   AND (seek_not_before IS NULL OR seek_not_before <= clock_timestamp())
   AND (seek_state = 'wanted'
        OR (seek_state = 'performing'
            AND seek_started_at < clock_timestamp() - make_interval(secs => $4 / 1000.0))))";

constexpr std::string_view kSeekDone = R"(
UPDATE {state}.consumer_groups
   SET seek_state = 'done', seek_done_at = now()
 WHERE group_name = $1 AND epoch = $2 AND epoch_token = $4::uuid
   AND seek_owner = $3 AND seek_state = 'performing')";

constexpr std::string_view kReleaseSeek = R"(
UPDATE {state}.consumer_groups
   SET seek_state = 'wanted', seek_owner = NULL
 WHERE group_name = $1 AND epoch = $2 AND epoch_token = $4::uuid
   AND seek_owner = $3 AND seek_state = 'performing')";

constexpr std::string_view kHeartbeat = R"(
INSERT INTO {state}.instances AS i
       (group_name, instance, epoch, lanes, handled, queued, publish_lag_ms, receive_lag_ms,
        commit_lag_ms, lag_ms, lag_basis, state, idle_lanes)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (group_name, instance) DO UPDATE
   SET epoch = EXCLUDED.epoch, lanes = EXCLUDED.lanes, seen_at = now(),
       handled = EXCLUDED.handled, queued = EXCLUDED.queued,
       publish_lag_ms = EXCLUDED.publish_lag_ms, receive_lag_ms = EXCLUDED.receive_lag_ms,
       commit_lag_ms = EXCLUDED.commit_lag_ms, lag_ms = EXCLUDED.lag_ms,
       lag_basis = EXCLUDED.lag_basis, state = EXCLUDED.state, idle_lanes = EXCLUDED.idle_lanes)";

constexpr std::string_view kLeave = R"(
DELETE FROM {state}.instances WHERE group_name = $1 AND instance = $2)";

// Two statements on purpose: one alone would wait for the lock and then read what it saw before.
constexpr postgres::Statement kLockShared{"epoch_lock_shared",
                                          "SELECT pg_advisory_xact_lock_shared($1)"};
constexpr std::string_view kCurrent =
    "SELECT epoch, epoch_token FROM {state}.consumer_groups WHERE group_id = $1";

std::optional<WallTime> OptionalTime(const postgres::Result& rows, int column) {
  if (rows.IsNull(0, column)) return std::nullopt;
  return rows.Time(0, column);
}

SeekKind ParseKind(std::string_view text) {
  if (text == "time") return SeekKind::kTime;
  if (text == "snapshot") return SeekKind::kSnapshot;
  return SeekKind::kNone;
}

}  // namespace

std::string_view Name(SeekKind kind) {
  switch (kind) {
    case SeekKind::kTime:
      return "time";
    case SeekKind::kSnapshot:
      return "snapshot";
    case SeekKind::kNone:
      break;
  }
  return "none";
}

Epochs::Epochs(const StateSchema& schema, ConsumerGroup group)
    : schema_(schema),
      group_(std::move(group)),
      load_(schema, "epoch_load", kLoad),
      create_(schema, "epoch_create", kCreate),
      lock_(schema, "epoch_lock", kLock),
      current_(schema, "epoch_current", kCurrent),
      claim_seek_(schema, "seek_claim", kClaimSeek),
      seek_done_(schema, "seek_done", kSeekDone),
      release_seek_(schema, "seek_release", kReleaseSeek),
      heartbeat_(schema, "instance_heartbeat", kHeartbeat),
      leave_(schema, "instance_leave", kLeave) {}

absl::StatusOr<GroupEpoch> Epochs::Load(postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   connection.Execute(load_, group_.value(), schema_.name()));
  if (rows.empty()) {
    return NotFound("consumer group '{}' has not run yet in schema '{}'", group_.value(),
                    schema_.name());
  }
  GroupEpoch group;
  group.group_id = static_cast<int>(rows.Int(0, 0));
  group.epoch = rows.Int(0, 1);
  group.token = rows.Text(0, 2);
  group.slot = static_cast<int>(rows.Int(0, 3));
  group.generation = static_cast<int>(rows.Int(0, 4));
  group.subscription = rows.Text(0, 5);
  group.seek.kind = ParseKind(rows.Text(0, 6));
  if (!rows.IsNull(0, 7)) group.seek.time = rows.Time(0, 7);
  group.seek.snapshot = rows.Text(0, 8);
  group.seek_done = rows.Bool(0, 9);
  group.skip_before = OptionalTime(rows, 10);
  group.overwrite_until = OptionalTime(rows, 11);
  group.first_publish_time = OptionalTime(rows, 12);
  group.lock_key = rows.Int(0, 13);
  return group;
}

absl::StatusOr<GroupEpoch> Epochs::LoadOrCreate(postgres::Connection& connection,
                                                const std::string& subscription,
                                                const WantedSeek& first,
                                                const std::string& by) const {
  auto group = Load(connection);
  if (group.ok() || !absl::IsNotFound(group.status())) return group;
  postgres::Params params;
  params.Add(group_.value()).Add(subscription).Add(Name(first.kind));
  first.kind == SeekKind::kTime ? params.Add(first.time) : params.Add(nullptr);
  first.kind == SeekKind::kSnapshot ? params.Add(first.snapshot) : params.Add(nullptr);
  ASSIGN_OR_RETURN(const postgres::Result made, connection.Execute(create_, params.Add(by)));
  group = Load(connection);
  if (group.ok()) group->created = made.affected_rows() > 0;
  return group;
}

absl::StatusOr<postgres::Transaction> Epochs::Begin(postgres::Connection& connection,
                                                    const GroupEpoch& under) const {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, BeginUnchecked(connection, under));
  ASSIGN_OR_RETURN(const postgres::Result rows, transaction.Execute(current_, under.group_id));
  RETURN_IF_ERROR(Check(under, rows));
  return transaction;
}

absl::StatusOr<postgres::Transaction> Epochs::BeginUnchecked(postgres::Connection& connection,
                                                             const GroupEpoch& under) const {
  postgres::Transaction transaction = connection.BeginLater();
  RETURN_IF_ERROR(transaction.Defer(kLockShared, under.lock_key));
  return transaction;
}

absl::Status Epochs::Check(const GroupEpoch& under, const postgres::Result& rows) const {
  if (defect::On("skip-epoch-check")) return absl::OkStatus();
  if (!rows.empty() && rows.Int(0, 0) == under.epoch && rows.Text(0, 1) == under.token) {
    return absl::OkStatus();
  }
  return absl::AbortedError(
      fmt::format("group '{}' has left epoch {}", group_.value(), under.epoch));
}

absl::Status Epochs::LockExclusively(postgres::Transaction& transaction) const {
  return transaction.Execute(lock_, group_.value(), schema_.name()).status();
}

absl::StatusOr<bool> Epochs::ClaimSeek(postgres::Connection& connection, const GroupEpoch& under,
                                       const std::string& owner, Millis takeover) const {
  ASSIGN_OR_RETURN(const postgres::Result claimed,
                   connection.Execute(claim_seek_, group_.value(), under.epoch, owner,
                                      static_cast<int64_t>(takeover.count()), under.token));
  return claimed.affected_rows() > 0;
}

absl::StatusOr<bool> Epochs::MarkSeekDone(postgres::Connection& connection, const GroupEpoch& under,
                                          const std::string& owner) const {
  ASSIGN_OR_RETURN(const postgres::Result done,
                   connection.Execute(seek_done_, group_.value(), under.epoch, owner, under.token));
  return done.affected_rows() > 0;
}

absl::Status Epochs::ReleaseSeek(postgres::Connection& connection, const GroupEpoch& under,
                                 const std::string& owner) const {
  return connection.Execute(release_seek_, group_.value(), under.epoch, owner, under.token)
      .status();
}

absl::Status Epochs::Heartbeat(postgres::Connection& connection, const GroupEpoch& under,
                               const std::string& instance, const InstanceReport& report) const {
  postgres::Params params;
  params.Add(group_.value())
      .Add(instance)
      .Add(under.epoch)
      .Add(report.lanes)
      .Add(report.handled)
      .Add(report.queued);
  for (const auto& lag : {report.publish_lag, report.receive_lag, report.commit_lag, report.lag}) {
    lag ? params.Add(static_cast<int64_t>(lag->count())) : params.Add(nullptr);
  }
  params.Add(report.lag_basis).Add(report.state);
  postgres::Array idle;
  for (const int lane : report.idle_lanes) idle.Add(static_cast<int64_t>(lane));
  return connection.Execute(heartbeat_, params.Add(idle)).status();
}

absl::Status Epochs::Leave(postgres::Connection& connection, const std::string& instance) const {
  return connection.Execute(leave_, group_.value(), instance).status();
}

bool IsStaleEpoch(const absl::Status& status) { return absl::IsAborted(status); }

}  // namespace lockstep::offsets
