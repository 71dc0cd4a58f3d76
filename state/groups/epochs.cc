#include "state/groups/epochs.h"

#include <fmt/format.h>

#include <utility>

#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kLoad = R"(
SELECT group_id, epoch, epoch_token, slot, generation, by_versions, subscription, seek_time,
       seek_snapshot, seek_state = 'done' AS seek_done, skip_before, overwrite_until,
       first_publish_time, lineage, epoch_began, paused_at, paused_by, pause_reason,
       ARRAY (SELECT o.generation FROM {state}.slots o
               WHERE o.group_name = a.group_name AND o.generation <> a.generation
              UNION SELECT r.generation FROM {state}.retired_generations r
               WHERE r.group_name = a.group_name AND r.served)::text AS other_generations,
       hashtextextended('lockstep.epoch.' || $2 || '.' || group_name, 0) AS lock_key
  FROM {state}.active_slots a
 WHERE group_name = $1)";

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

// Times further ahead than they can be were written before the database's clock went back.
constexpr std::string_view kPullBackSeek = R"(
UPDATE {state}.consumer_groups
   SET seek_not_before = least(seek_not_before,
                               clock_timestamp() + make_interval(secs => $3 / 1000.0)),
       seek_started_at = least(seek_started_at, clock_timestamp())
 WHERE group_name = $1 AND epoch = $2
   AND greatest(seek_not_before - make_interval(secs => $3 / 1000.0), seek_started_at)
       > clock_timestamp() + interval '1 minute')";

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

// clock_timestamp() on purpose: now() is when the transaction began, before it got the lock.
constexpr std::string_view kNewEpoch = R"(
UPDATE {state}.consumer_groups
   SET epoch = epoch + 1, epoch_token = gen_random_uuid(),
       seek_kind = $2, seek_time = $3, seek_snapshot = $4,
       seek_state = CASE WHEN $2 = 'none' THEN 'done' ELSE 'wanted' END,
       seek_owner = NULL, seek_started_at = NULL, seek_done_at = NULL,
       seek_not_before = greatest(
         clock_timestamp() + make_interval(secs => $5 / 1000.0),
         CASE WHEN seek_state <> 'done' THEN seek_not_before END,
         CASE WHEN seek_state = 'performing'
              THEN seek_started_at + make_interval(secs => $6 / 1000.0) END),
       skip_before = $7,
       overwrite_until = CASE WHEN $8 THEN coalesce($9, greatest(clock_timestamp(),
                                                             $11::timestamptz + interval '1 ms')) END,
       updated_at = clock_timestamp(), updated_by = $10
 WHERE group_name = $1
RETURNING epoch)";

// The control file has the new timeline only after the next checkpoint; the WAL has it at once.
constexpr std::string_view kLineage = R"(
SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) AS lineage
  FROM pg_control_system())";

constexpr std::string_view kNoteLineage = R"(
WITH was AS (SELECT lineage FROM {state}.consumer_groups WHERE group_name = $1 FOR UPDATE),
     noted AS (UPDATE {state}.consumer_groups SET lineage = $2 WHERE group_name = $1)
INSERT INTO {state}.audit (group_name, action, operator, old, new)
SELECT $1, 'database.moved', $3, to_jsonb(lineage), to_jsonb($2::text)
  FROM was WHERE lineage <> $2)";

constexpr std::string_view kNoteNeeds = R"(
UPDATE {state}.consumer_groups SET follows_versions = $2, minds_replays = $3
 WHERE group_name = $1 AND (follows_versions <> $2 OR minds_replays <> $3))";

constexpr std::string_view kPause = R"(
WITH changed AS (
  UPDATE {state}.consumer_groups
     SET paused_at = clock_timestamp(), paused_by = $2, pause_reason = $3
   WHERE group_name = $1 AND paused_at IS NULL
  RETURNING group_name)
INSERT INTO {state}.audit (group_name, action, operator, reason)
SELECT group_name, 'group.paused', $2, $3 FROM changed)";

constexpr std::string_view kResume = R"(
WITH was AS (
  SELECT group_name, jsonb_build_object('paused_at', paused_at, 'paused_by', paused_by,
                                        'reason', pause_reason) AS old
    FROM {state}.consumer_groups WHERE group_name = $1 AND paused_at IS NOT NULL FOR UPDATE),
changed AS (
  UPDATE {state}.consumer_groups g SET paused_at = NULL, paused_by = NULL, pause_reason = NULL
    FROM was WHERE g.group_name = was.group_name)
INSERT INTO {state}.audit (group_name, action, operator, reason, old)
SELECT group_name, 'group.resumed', $2, $3, old FROM was)";

constexpr std::string_view kForget = "DELETE FROM {state}.consumer_groups WHERE group_name = $1";

// Two statements on purpose: one alone would wait for the lock and then read what it saw before.
constexpr postgres::Statement kLockShared{"epoch_lock_shared",
                                          "SELECT pg_advisory_xact_lock_shared($1)"};
constexpr std::string_view kCurrent =
    "SELECT epoch, epoch_token, paused_at FROM {state}.consumer_groups WHERE group_id = $1";

}  // namespace

Epochs::Epochs(const Schema& schema, ConsumerGroup group)
    : GroupStore(schema, std::move(group)),
      load_(schema, "epoch_load", kLoad),
      current_(schema, "epoch_current", kCurrent) {}

namespace {

std::string Others(std::string_view array) { return array == "{}" ? "" : std::string(array); }

std::string PausedWords(const postgres::Row& row) {
  if (row.IsNull("paused_at")) return "";
  const std::string reason = row.OptionalText("pause_reason").value_or("");
  return fmt::format("paused by {} at {}{}{}", row.Text("paused_by"),
                     FormatTimestamp(row.Time("paused_at")), reason.empty() ? "" : ": ", reason);
}

}  // namespace

absl::StatusOr<GroupEpoch> Epochs::Load(postgres::Executor& on) const {
  ASSIGN_OR_RETURN(const postgres::Result rows, on.Execute(load_, group_, schema_.name()));
  if (rows.empty()) {
    return NotFound("consumer group '{}' has not run yet in schema '{}'", group_.value(),
                    schema_.name());
  }
  const postgres::Row row = rows[0];
  return GroupEpoch{
      .group_id = static_cast<int>(row.Int("group_id")),
      .epoch = row.Int("epoch"),
      .token = row.String("epoch_token"),
      .slot = static_cast<int>(row.Int("slot")),
      .generation = static_cast<int>(row.Int("generation")),
      .by_versions = row.Bool("by_versions"),
      .subscription = row.String("subscription"),
      .seek = SeekTarget::Stored(row.OptionalTime("seek_time"), row.OptionalText("seek_snapshot")),
      .seek_done = row.Bool("seek_done"),
      .skip_before = row.OptionalTime("skip_before"),
      .overwrite_until = row.OptionalTime("overwrite_until"),
      .first_publish_time = row.OptionalTime("first_publish_time"),
      .lineage = row.OptionalText("lineage").value_or(""),
      .began = row.Time("epoch_began"),
      .lock_key = row.Int("lock_key"),
      .other_generations = Others(row.Text("other_generations")),
      .paused = PausedWords(row)};
}

absl::StatusOr<GroupEpoch> Epochs::LoadOrCreate(postgres::Connection& connection,
                                                const std::string& subscription,
                                                const SeekTarget& first,
                                                const std::string& by) const {
  auto group = Load(connection);
  if (group.ok() || !absl::IsNotFound(group.status())) return group;
  ASSIGN_OR_RETURN(const int64_t made,
                   connection.Affected(schema_.Sql(kCreate), group_, subscription,
                                       first.kind_name(), first.time, first.snapshot, by));
  group = Load(connection);
  if (group.ok()) group->created = made > 0;
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
  const bool paused = !rows.empty() && !rows[0].IsNull("paused_at");
  if (!rows.empty() && !paused && rows[0].Int("epoch") == under.epoch &&
      rows[0].Text("epoch_token") == under.token) {
    return absl::OkStatus();
  }
  if (paused) {
    return absl::AbortedError(fmt::format(
        "group '{0}' is paused; `lockstepctl group resume {0}` lets it go on", group_.value()));
  }
  return absl::AbortedError(
      fmt::format("group '{}' has left epoch {}", group_.value(), under.epoch));
}

absl::Status Epochs::LockExclusively(postgres::Transaction& transaction) const {
  return transaction.Run(kLock, group_, schema_.name());
}

absl::StatusOr<bool> Epochs::ClaimSeek(postgres::Connection& connection, const GroupEpoch& under,
                                       const std::string& owner, Millis takeover) const {
  ASSIGN_OR_RETURN(const int64_t claimed,
                   connection.Affected(schema_.Sql(kClaimSeek), group_, under.epoch, owner,
                                       takeover, under.token));
  if (claimed > 0) return true;
  RETURN_IF_ERROR(connection.Run(schema_.Sql(kPullBackSeek), group_, under.epoch, takeover));
  return false;
}

absl::StatusOr<bool> Epochs::MarkSeekDone(postgres::Connection& connection, const GroupEpoch& under,
                                          const std::string& owner) const {
  ASSIGN_OR_RETURN(const int64_t done, connection.Affected(schema_.Sql(kSeekDone), group_,
                                                           under.epoch, owner, under.token));
  return done > 0;
}

absl::Status Epochs::ReleaseSeek(postgres::Connection& connection, const GroupEpoch& under,
                                 const std::string& owner) const {
  return connection.Run(schema_.Sql(kReleaseSeek), group_, under.epoch, owner, under.token);
}

absl::StatusOr<int64_t> Epochs::BeginNew(postgres::Transaction& transaction,
                                         const NewEpoch& epoch) const {
  return transaction.Number(schema_.Sql(kNewEpoch), group_, epoch.seek.kind_name(), epoch.seek.time,
                            epoch.seek.snapshot, epoch.fence, epoch.takeover, epoch.skip_before,
                            epoch.overwrite, epoch.overwrite_until, epoch.by, epoch.committed);
}

absl::StatusOr<std::string> Epochs::Lineage(postgres::Connection& connection) {
  const auto rows = connection.Execute(kLineage);
  if (rows.ok()) return (*rows)[0].String("lineage");
  if (postgres::Classify(rows.status()) == postgres::ErrorClass::kTransient) return rows.status();
  return "";
}

absl::Status Epochs::NoteLineage(postgres::Connection& connection, const std::string& lineage,
                                 const std::string& by) const {
  return connection.Run(schema_.Sql(kNoteLineage), group_, lineage, by);
}

absl::Status Epochs::NoteNeeds(postgres::Connection& connection, bool follows_versions,
                               bool minds_replays) const {
  return connection.Run(schema_.Sql(kNoteNeeds), group_, follows_versions, minds_replays);
}

absl::StatusOr<bool> Epochs::Pause(postgres::Transaction& transaction, const std::string& by,
                                   const std::string& reason) const {
  RETURN_IF_ERROR(LockExclusively(transaction));
  ASSIGN_OR_RETURN(const int64_t changed,
                   transaction.Affected(schema_.Sql(kPause), group_, by, reason));
  return changed > 0;
}

absl::StatusOr<bool> Epochs::Resume(postgres::Transaction& transaction, const std::string& by,
                                    const std::string& reason) const {
  ASSIGN_OR_RETURN(const int64_t changed,
                   transaction.Affected(schema_.Sql(kResume), group_, by, reason));
  return changed > 0;
}

absl::Status Epochs::Forget(postgres::Transaction& transaction) const {
  return transaction.Run(schema_.Sql(kForget), group_);
}

bool IsStaleEpoch(const absl::Status& status) { return absl::IsAborted(status); }

}  // namespace lockstep::state
