#include "publisher/outbox/shard_locks.h"

#include <utility>

#include "platform/status.h"
#include "postgres/pooler.h"

namespace lockstep::publisher {
namespace {

using postgres::Array;
using postgres::Row;

// One row per outbox of $1, in its order: shards and how many sessions hold the member lock (a
// bigint key is shown by pg_locks as two halves).
constexpr char kLook[] = R"sql(
SELECT o.shards, pg_backend_pid() AS backend,
       (SELECT count(*)
        FROM pg_locks l, lockstep.lock_key('member', o.outbox, 0) AS k
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.classid::bigint = (k >> 32 & 4294967295)
          AND l.objid::bigint = (k & 4294967295)) AS members
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
    views.push_back({static_cast<int>(row.Int("shards")), static_cast<int>(row.Int("members"))});
  }
  return views;
}

}  // namespace lockstep::publisher
