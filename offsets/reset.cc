#include "offsets/reset.h"

#include <fmt/format.h>

#include <utility>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::offsets {
namespace {

constexpr std::string_view kLockNotAvailable = "55P03";

constexpr std::string_view kBefore = R"(
SELECT g.epoch, s.slot, s.generation, s.subscription
  FROM {state}.consumer_groups g
  JOIN {state}.slots s ON s.group_name = g.group_name AND s.slot = g.active_slot
 WHERE g.group_name = $1)";

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
       overwrite_until = CASE WHEN $8 THEN coalesce($9, clock_timestamp()) END,
       updated_at = clock_timestamp(), updated_by = $10
 WHERE group_name = $1
RETURNING epoch)";

constexpr std::string_view kNewGeneration = R"(
WITH old AS (
  INSERT INTO {state}.retired_generations (generation, group_name) VALUES ($3, $1))
UPDATE {state}.slots
   SET generation = DEFAULT, first_publish_time = NULL
 WHERE group_name = $1 AND slot = $2
RETURNING generation)";

// They belong to a life of the read model that is over; the replay meets their events again.
constexpr std::string_view kDiscardDead = R"(
UPDATE {state}.dead_letters
   SET state = 'discarded', resolved_at = now(), resolved_by = $2,
       note = concat_ws('; ', note, 'a reset emptied the read model')
 WHERE generation = $1 AND state IN ('dead', 'quarantined'))";

// A reset forward leaves events out on purpose: what waits for them waits no longer. Forward of
// where this read model ever was: two resets to the earliest, one after the other, are not.
constexpr std::string_view kIsForward = R"(
SELECT coalesce(max(publish_time) < $2, false)
  FROM (SELECT publish_time FROM {state}.offsets WHERE group_name = $1
        UNION ALL
        SELECT (was ->> 'publish_time')::timestamptz
          FROM {state}.audit a,
               jsonb_array_elements(CASE jsonb_typeof(a.old) WHEN 'array' THEN a.old END) AS was
         WHERE a.group_name = $1 AND a.action = 'offsets.reset'
           AND a.id > coalesce((SELECT max(id) FROM {state}.audit
                                 WHERE group_name = $1 AND (new ->> 'mode' = 'empty'
                                                            OR action LIKE 'rebuild%')), 0)) p)";
constexpr std::string_view kOpenKeys = R"(
UPDATE {state}.key_state SET open = true WHERE generation = $1 AND settled_version IS NOT NULL)";
constexpr std::string_view kCloseGaps = R"(
UPDATE {state}.key_state k
   SET settled_version = w.first - 1, previous_version = NULL
  FROM (SELECT aggregate_key, min(version) AS first FROM {state}.parked
         WHERE generation = $1 GROUP BY aggregate_key) w
 WHERE k.generation = $1 AND k.aggregate_key = w.aggregate_key
   AND k.blocked_version IS NULL AND k.settled_version IS NOT NULL)";

constexpr std::string_view kNotify = "SELECT pg_notify('lockstep_epoch', $1)";

constexpr std::string_view kHolders = R"(
WITH key AS (SELECT hashtextextended('lockstep.epoch.' || $2 || '.' || $1, 0) AS k)
SELECT DISTINCT a.pid, a.application_name, coalesce(a.state, 'unknown'),
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::bigint, 0)
  FROM pg_locks l
  JOIN pg_stat_activity a USING (pid), key
 WHERE l.granted AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND ((l.locktype = 'advisory' AND l.objsubid = 1
         AND l.classid::bigint = (key.k >> 32) & 4294967295
         AND l.objid::bigint = key.k & 4294967295)
        OR (l.locktype = 'relation'
            AND l.relation = ANY (SELECT to_regclass(t) FROM unnest($3::text[]) AS t)))
 ORDER BY a.pid)";

}  // namespace

std::string_view Name(ResetMode mode) {
  switch (mode) {
    case ResetMode::kEmpty:
      return "empty";
    case ResetMode::kOverwrite:
      return "overwrite";
    case ResetMode::kKeep:
      break;
  }
  return "keep";
}

Resets::Resets(const StateSchema& schema, ConsumerGroup group)
    : schema_(schema), group_(std::move(group)), epochs_(schema, group_), offsets_(schema) {}

absl::StatusOr<ResetDone> Resets::Run(postgres::Connection& connection, const ResetRequest& request,
                                      const OnWait& on_wait) const {
  const SteadyTime give_up = Clock::System().Steady() + request.lock_give_up;
  while (true) {
    auto done = Try(connection, request);
    if (done.ok() || postgres::SqlState(done.status()) != kLockNotAvailable) return done;
    ASSIGN_OR_RETURN(const auto holders, Holders(connection, request.tables));
    if (on_wait) on_wait(holders);
    if (Clock::System().Steady() >= give_up) {
      return absl::DeadlineExceededError(
          fmt::format("nothing was changed: the lock of group '{}' is held by {}", group_.value(),
                      holders.empty() ? "somebody who has just gone; try again"
                                      : fmt::format("{}", fmt::join(holders, "; "))));
    }
  }
}

absl::StatusOr<ResetDone> Resets::Try(postgres::Connection& connection,
                                      const ResetRequest& request) const {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  RETURN_IF_ERROR(
      transaction.Execute(fmt::format("SET LOCAL lock_timeout = {}", request.lock_try.count()))
          .status());
  RETURN_IF_ERROR(epochs_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(const ResetDone done, Write(transaction, request));
  RETURN_IF_ERROR(transaction.Commit());
  return done;
}

absl::StatusOr<ResetDone> Resets::Write(postgres::Transaction& transaction,
                                        const ResetRequest& request) const {
  using postgres::Params;
  const auto sql = [&](std::string_view text) { return schema_.Sql(text); };
  ASSIGN_OR_RETURN(const postgres::Result before,
                   transaction.Execute(sql(kBefore), group_.value()));
  if (before.empty()) {
    return NotFound("consumer group '{}' has not run yet in schema '{}'", group_.value(),
                    schema_.name());
  }
  ResetDone done{.old_epoch = before.Int(0, 0)};
  const bool time = request.seek.kind == SeekKind::kTime;
  const bool overwrite = request.mode == ResetMode::kOverwrite;
  const std::optional<WallTime> skip =
      time ? std::optional(request.seek.time) : request.skip_before;
  Params params;
  params.Add(group_.value()).Add(Name(request.seek.kind));
  time ? params.Add(request.seek.time) : params.Add(nullptr);
  request.seek.kind == SeekKind::kSnapshot ? params.Add(request.seek.snapshot)
                                           : params.Add(nullptr);
  params.Add(static_cast<int64_t>(request.fence.count()))
      .Add(static_cast<int64_t>(request.takeover.count()));
  skip ? params.Add(*skip) : params.Add(nullptr);
  params.Add(overwrite);
  request.overwrite_until ? params.Add(*request.overwrite_until) : params.Add(nullptr);
  ASSIGN_OR_RETURN(const postgres::Result epoch,
                   transaction.Execute(sql(kNewEpoch), params.Add(request.operator_name)));
  done.epoch = epoch.Int(0, 0);
  done.generation = static_cast<int>(before.Int(0, 2));
  if (request.mode == ResetMode::kEmpty) {
    RETURN_IF_ERROR(Empty(transaction, request, done.generation));
    ASSIGN_OR_RETURN(const postgres::Result generation,
                     transaction.Execute(sql(kNewGeneration), group_.value(), before.Int(0, 1),
                                         done.generation));
    done.generation = static_cast<int>(generation.Int(0, 0));
  } else if (time) {
    RETURN_IF_ERROR(SkipGaps(transaction, request, done.generation));
  }
  ResetRecord record{.group = group_,
                     .subscription = std::string(before.Text(0, 3)),
                     .epoch = done.epoch,
                     .operator_name = request.operator_name,
                     .reason = request.reason,
                     .action = request.action,
                     .mode = std::string(Name(request.mode)),
                     .snapshot = request.seek.snapshot};
  if (time) record.to = Position{request.seek.time, MessageId()};
  RETURN_IF_ERROR(offsets_.Reset(&transaction, record));
  RETURN_IF_ERROR(
      transaction.Execute(kNotify, fmt::format("{}.{}", schema_.name(), group_.value())).status());
  return done;
}

absl::Status Resets::Empty(postgres::Transaction& transaction, const ResetRequest& request,
                           int old_generation) const {
  for (const std::string& table : request.tables) {
    ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
    RETURN_IF_ERROR(transaction.Execute(fmt::format("TRUNCATE {}", name.Quoted())).status());
  }
  return transaction.Execute(schema_.Sql(kDiscardDead), old_generation, request.operator_name)
      .status();
}

absl::Status Resets::SkipGaps(postgres::Transaction& transaction, const ResetRequest& request,
                              int generation) const {
  ASSIGN_OR_RETURN(const postgres::Result forward,
                   transaction.Execute(schema_.Sql(kIsForward), group_.value(), request.seek.time));
  if (!forward.Bool(0, 0)) return absl::OkStatus();
  for (const std::string_view text : {kOpenKeys, kCloseGaps}) {
    RETURN_IF_ERROR(transaction.Execute(schema_.Sql(text), generation).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Resets::Holders(
    postgres::Connection& connection, const std::vector<std::string>& tables) const {
  postgres::Array names;
  for (const std::string& table : tables) {
    ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
    names.Add(name.Quoted());
  }
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   connection.Execute(kHolders, group_.value(), schema_.name(), names));
  std::vector<std::string> holders;
  holders.reserve(rows.rows());
  for (int i = 0; i < rows.rows(); ++i) {
    holders.push_back(fmt::format("{} (pid {}, {}, {} s in its transaction)",
                                  rows.Text(i, 1).empty() ? "a session" : rows.Text(i, 1),
                                  rows.Int(i, 0), rows.Text(i, 2), rows.Int(i, 3)));
  }
  return holders;
}

}  // namespace lockstep::offsets
