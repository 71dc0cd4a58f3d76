#include "publisher/outbox/shard_locks.h"

#include <utility>

#include "platform/status.h"
#include "postgres/pooler.h"

namespace lockstep::publisher {
namespace {

using postgres::Array;
using postgres::Row;

// One row per outbox of $1, in its order: shards, how many sessions hold the member lock, and one
// that holds a shard without it (a bigint key is shown by pg_locks as two halves).
constexpr char kLook[] = R"sql(
WITH held AS MATERIALIZED (
  SELECT l.pid, l.classid::bigint << 32 | l.objid::bigint AS key
  FROM pg_locks l
  WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
SELECT o.shards, pg_backend_pid() AS backend,
       (SELECT count(*) FROM held h WHERE h.key = lockstep.lock_key('member', o.outbox, 0)) AS members,
       (SELECT format('pid %s, role %s, application "%s"', h.pid, a.usename, a.application_name)
        FROM generate_series(0, o.shards - 1) s
        JOIN held h ON h.key = lockstep.lock_key('shard', o.outbox, s)
        JOIN pg_stat_activity a ON a.pid = h.pid
        WHERE h.pid <> pg_backend_pid()
          AND NOT EXISTS (SELECT 1 FROM held m
                          WHERE m.pid = h.pid AND m.key = lockstep.lock_key('member', o.outbox, 0))
        ORDER BY h.pid LIMIT 1) AS stranger
FROM unnest($1::oid[]) WITH ORDINALITY AS t(oid, n)
JOIN lockstep.outboxes o ON o.outbox::oid = t.oid
ORDER BY t.n)sql";

constexpr char kJoin[] = R"sql(
SELECT pg_advisory_lock_shared(lockstep.lock_key('member', $1::oid::regclass, 0)))sql";
constexpr char kLeave[] = R"sql(
SELECT pg_advisory_unlock_shared(lockstep.lock_key('member', $1::oid::regclass, 0)))sql";

// LIMIT ends the locking as soon as enough are had.
constexpr char kTake[] = R"sql(
SELECT s AS shard FROM unnest($2::int[]) s
WHERE pg_try_advisory_lock(lockstep.lock_key('shard', $1::oid::regclass, s))
LIMIT $3::int)sql";
constexpr char kRelease[] = R"sql(
SELECT count(pg_advisory_unlock(lockstep.lock_key('shard', $1::oid::regclass, s)))
FROM unnest($2::int[]) s)sql";

constexpr char kSetShardCount[] = R"sql(
UPDATE lockstep.outboxes SET shards = $2 WHERE outbox = $1::oid::regclass)sql";

}  // namespace

ShardLocks::ShardLocks(std::unique_ptr<postgres::Connection> session, int64_t backend)
    : session_(std::move(session)), backend_(backend) {}

absl::StatusOr<std::unique_ptr<ShardLocks>> ShardLocks::Open(const std::string& database,
                                                             Millis session_timeout) {
  postgres::ConnectionOptions options;
  options.url = database;
  options.application_name = "lockstep-publisher shards";
  options.idle_session_timeout = session_timeout;
  options.statement_timeout = Millis(10'000);
  ASSIGN_OR_RETURN(auto session, postgres::Connection::Open(options));
  RETURN_IF_ERROR(postgres::RefuseTransactionPooler(*session, options));
  ASSIGN_OR_RETURN(const int64_t backend, session->Number("SELECT pg_backend_pid()"));
  return std::unique_ptr<ShardLocks>(new ShardLocks(std::move(session), backend));
}

absl::StatusOr<Outbox> ShardLocks::Find(const postgres::QualifiedName& table) {
  return FindOutbox(*session_, table);
}

absl::Status ShardLocks::Join(int64_t outbox) { return session_->Run(kJoin, outbox); }

absl::Status ShardLocks::Leave(int64_t outbox) { return session_->Run(kLeave, outbox); }

absl::StatusOr<std::vector<int>> ShardLocks::Take(int64_t outbox, const std::vector<int>& shards,
                                                  int at_most) {
  ASSIGN_OR_RETURN(const auto taken, session_->Execute(kTake, outbox, Array(shards), at_most));
  std::vector<int> held;
  for (const Row row : taken) held.push_back(static_cast<int>(row.Int("shard")));
  return held;
}

absl::Status ShardLocks::Release(int64_t outbox, const std::vector<int>& shards) {
  if (shards.empty()) return absl::OkStatus();
  return session_->Run(kRelease, outbox, Array(shards));
}

absl::Status ShardLocks::SetShardCount(int64_t outbox, int count) {
  return session_->Run(kSetShardCount, outbox, count);
}

absl::StatusOr<std::vector<ShardLocks::View>> ShardLocks::Look(
    const std::vector<int64_t>& outboxes) {
  ASSIGN_OR_RETURN(const auto rows, session_->Execute(kLook, Array(outboxes)));
  if (rows.rows() != static_cast<int>(outboxes.size())) {
    return FailedPrecondition("an outbox was dropped while it was relayed");
  }
  std::vector<View> views;
  for (const Row row : rows) {
    if (row.Int("backend") != backend_) {
      return FailedPrecondition(
          "the session moved to another server process: a transaction pooler "
          "stands between; connect the publisher to Postgres itself");
    }
    views.push_back({static_cast<int>(row.Int("shards")), static_cast<int>(row.Int("members")),
                     row.IsNull("stranger") ? "" : row.String("stranger")});
  }
  return views;
}

}  // namespace lockstep::publisher
