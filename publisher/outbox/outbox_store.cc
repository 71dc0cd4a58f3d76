#include "publisher/outbox/outbox_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using postgres::Array;
using postgres::Params;
using postgres::Result;
using postgres::Row;
using postgres::Statement;

// What marks have in common: the rows that they are about, `m`, and `ours`: those of them that are
// in the leases under which they were claimed. The leases are locked first: whoever takes one over
// must have done so before, or waits. (IS TRUE makes of IN a hash table rather than a join.) $1
// sequences, $2 hashes, $3 versions, $4 tokens, $5 the tokens each once.
constexpr char kOurs[] = R"sql(
lease AS MATERIALIZED (
  SELECT l.token, l.locked_at, l.sequences FROM {leases} l WHERE l.token = ANY ($5::uuid[]) FOR UPDATE),
ours AS MATERIALIZED (
  SELECT m.* FROM m WHERE ((m.token, m.sequence) IN (SELECT l.token, unnest(l.sequences) FROM lease l)) IS TRUE))sql";

// In the queue, a row that is `ours`.
constexpr char kIsOurs[] =
    "p.aggregate_hash = m.aggregate_hash AND p.version = m.version AND p.sequence = m.sequence";

// $6 the leases that end with these rows, $7 message ids. Answers the rows that were still ours.
constexpr char kMark[] = R"sql(
WITH m AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::uuid[], $7::text[])
                  AS m(sequence, aggregate_hash, version, token, message_id)),
{ours},
gone AS (
  DELETE FROM {pending} p USING ours m WHERE {is_ours}
  RETURNING p.sequence, p.attempts, p.taken_by, m.message_id),
over AS (
  DELETE FROM {leases} WHERE token = ANY ($6::uuid[]) AND token IN (SELECT token FROM lease))
INSERT INTO {published} (sequence, published_at, attempts, message_id, taken_by)
SELECT sequence, statement_timestamp(), attempts, message_id, taken_by FROM gone
RETURNING sequence)sql";

// $6 as above, $7 attempts to add, $8 delay in ms (negative = held), $9 error, $10 code, $11 dead,
// $12 the routes that have it, as JSON (NULL = as before).
constexpr char kFail[] = R"sql(
WITH m AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::uuid[], $7::int[], $8::bigint[], $9::text[],
                       $10::text[], $11::boolean[], $12::text[])
                  AS m(sequence, aggregate_hash, version, token, spent, delay, error, code, dead, taken)),
{ours},
failed AS (
  UPDATE {pending} p
  SET attempts = p.attempts + m.spent,
      available_at = CASE WHEN m.dead OR m.delay < 0 THEN 'infinity'
                          WHEN m.delay = 0 THEN p.available_at
                          ELSE statement_timestamp() + m.delay * interval '1 ms' END,
      dead_at = CASE WHEN m.dead THEN statement_timestamp() END,
      last_error = coalesce(m.error, p.last_error), error_code = coalesce(m.code, p.error_code),
      taken_by = coalesce(m.taken::jsonb, p.taken_by),
      locked_at = (SELECT l.locked_at FROM lease l WHERE l.token = m.token)
  FROM ours m WHERE {is_ours}
  RETURNING p.sequence),
left_over AS (
  UPDATE {leases} l
  SET sequences = ARRAY(SELECT s FROM unnest(l.sequences) s WHERE s NOT IN (SELECT f.sequence FROM failed f))
  WHERE l.token = ANY ($5::uuid[]) AND l.token <> ALL ($6::uuid[])),
over AS (
  DELETE FROM {leases} WHERE token = ANY ($6::uuid[]) AND token IN (SELECT token FROM lease))
SELECT sequence FROM failed)sql";

constexpr char kRenew[] = R"sql(
WITH m AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::uuid[]) AS m(sequence, aggregate_hash, version, token)),
{ours},
renewed AS (
  UPDATE {leases} l SET locked_at = statement_timestamp()
  WHERE l.token IN (SELECT m.token FROM ours m))
SELECT m.sequence FROM ours m JOIN {pending} p ON {is_ours})sql";

// The rows held behind blockers whose fate is known. $1 the blockers' hashes.
constexpr char kReleaseBehind[] = R"sql(
UPDATE {pending} t SET available_at = statement_timestamp()
FROM (SELECT DISTINCT h AS aggregate_hash FROM unnest($1::bigint[]) h) c
WHERE t.aggregate_hash = c.aggregate_hash AND t.available_at = 'infinity' AND t.dead_at IS NULL
  AND t.quarantined_at IS NULL)sql";

// How rows ended that did not simply pass. $1 the outbox, $2 sequences, $3 owner, $4 outcome.
constexpr char kAuditEnd[] = R"sql(
INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, detail)
SELECT $3::text, $4::text, lockstep.outbox_name($1::regclass), sequence, event_id,
       jsonb_strip_nulls(jsonb_build_object('attempts', attempts, 'error_code', error_code, 'message_id', message_id))
FROM {status} WHERE sequence = ANY ($2::bigint[]))sql";

// A lost lease leaves the row's present state in the audit, and nothing else. $1 the outbox,
// $2 sequences, $3 owner.
constexpr char kAuditLost[] = R"sql(
INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, detail)
SELECT $3::text, 'outbox_flush_conflict', lockstep.outbox_name($1::regclass), sequence, event_id,
       jsonb_build_object('published_at', published_at, 'message_id', message_id, 'attempts', attempts,
                          'available_at', available_at::text, 'lock_token', lock_token, 'locked_by', locked_by,
                          'locked_at', locked_at, 'error_code', error_code, 'dead_at', dead_at,
                          'quarantined_at', quarantined_at)
FROM {status} WHERE sequence = ANY ($2::bigint[])
RETURNING sequence, jsonb_strip_nulls(detail)::text AS state)sql";

// By their event ids: a database that went back gives out the same sequences again. $1 the outbox,
// $2 owner, $3 … of the rows.
constexpr char kAuditGone[] = R"sql(
INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, detail)
SELECT $2::text, 'outbox_flush_gone', lockstep.outbox_name($1::regclass), m.sequence, m.event_id,
       jsonb_build_object('tenant_id', m.tenant_id, 'aggregate_type', m.aggregate_type,
                          'aggregate_id', m.aggregate_id, 'version', m.version)
FROM unnest($3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::bigint[])
     AS m(sequence, event_id, tenant_id, aggregate_type, aggregate_id, version)
WHERE NOT EXISTS (SELECT 1 FROM {outbox} t WHERE t.event_id = m.event_id))sql";

// How long nothing will fall due, in ms, or NULL: the next retry, or the end of a lease of another.
// $1 shards, $2 of how many, $3 lease in ms, $4 the place below which nothing is looked for.
constexpr char kNextDue[] = R"sql(
SELECT (extract(epoch FROM least(
  (SELECT p.available_at FROM {pending} p
   WHERE p.available_at > statement_timestamp() AND p.available_at < 'infinity'
     AND ($2::int = 1 OR lockstep.shard_of_hash(p.aggregate_hash, $2::int) = ANY ($1::int[]))
   ORDER BY p.available_at, p.sequence LIMIT 1),
  (SELECT min(l.locked_at) + $3::bigint * interval '1 ms' FROM {leases} l
   WHERE l.claimed_at >= $4::timestamptz
     AND EXISTS (SELECT FROM unnest(l.sequences) s(sequence)
                 JOIN {outbox} e ON e.sequence = s.sequence
                 JOIN {pending} p ON p.aggregate_hash = lockstep.aggregate_hash(e.aggregate_id, e.aggregate_type, e.tenant_id)
                                 AND p.version = e.version AND p.sequence = s.sequence
                 WHERE p.available_at <= statement_timestamp()
                   AND ($2::int = 1 OR lockstep.shard_of_hash(p.aggregate_hash, $2::int) = ANY ($1::int[]))))
) - statement_timestamp()) * 1000)::bigint AS ms)sql";

// $1 the outbox's oid, $2 shards. An owner that wants to be told of rows holds them; see
// lockstep.enqueue.
constexpr char kTryWakeLocks[] = R"sql(
SELECT s AS shard, pg_try_advisory_lock(lockstep.lock_key('wake', $1::oid::regclass, s)) AS locked
FROM unnest($2::int[]) s)sql";
constexpr char kWakeUnlock[] = R"sql(
SELECT count(pg_advisory_unlock(lockstep.lock_key('wake', $1::oid::regclass, s)))
FROM unnest($2::int[]) s)sql";

// Rows, as a statement finds them in the queue.
struct Places {
  explicit Places(size_t rows)
      : sequences(rows * 10), hashes(rows * 20), versions(rows * 10), tokens(rows * 40) {}

  void Add(const OutboxRow& row) {
    sequences.Add(row.sequence);
    hashes.Add(row.aggregate_hash);
    versions.Add(row.version);
    tokens.AddPlain(row.lock_token);
    leases.insert(row.lock_token);
  }
  Array Leases() const {
    Array each;
    for (const std::string_view token : leases) each.AddPlain(token);
    return each;
  }

  Array sequences;
  Array hashes;
  Array versions;
  Array tokens;
  std::set<std::string_view> leases;
};

std::vector<int64_t> ReadSequences(const Result& result) {
  std::vector<int64_t> sequences;
  sequences.reserve(result.rows());
  for (const Row row : result) sequences.push_back(row.Int("sequence"));
  return sequences;
}

}  // namespace

Statement OutboxStore::About(std::string_view name, std::string_view sql) {
  Text& text = statements_[name];
  if (text.name.empty()) {
    text = {fmt::format("{} {}", name, outbox_.oid),
            FillParts(postgres::FillNames(sql, {{"ours", kOurs}, {"is_ours", kIsOurs}}), table_)};
  }
  return {text.name, text.sql};
}

absl::StatusOr<std::unique_ptr<OutboxStore>> OutboxStore::Open(
    postgres::Connection& connection, const postgres::QualifiedName& table) {
  RETURN_IF_ERROR(connection.Run(OutboxSettings()));
  ASSIGN_OR_RETURN(Outbox outbox, FindOutbox(connection, table));
  return std::unique_ptr<OutboxStore>(new OutboxStore(connection, table, std::move(outbox)));
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::Update(const Statement& statement,
                                                         const Params& params,
                                                         const std::vector<int64_t>& unblocking,
                                                         const std::vector<Ends>& ends) {
  if (unblocking.empty() && std::ranges::all_of(ends, &std::vector<int64_t>::empty, &Ends::rows)) {
    ASSIGN_OR_RETURN(const Result result, connection_.Execute(statement, params));
    return ReadSequences(result);
  }
  // Together, or a crash in between would leave the followers held until the safety net finds them.
  ASSIGN_OR_RETURN(auto transaction, connection_.Begin());
  ASSIGN_OR_RETURN(const Result result, transaction.Execute(statement, params));
  const std::vector<int64_t> kept = ReadSequences(result);
  if (!unblocking.empty()) {
    RETURN_IF_ERROR(transaction.Run(About("release_behind", kReleaseBehind), Array(unblocking)));
  }
  for (const Ends& end : ends) {
    std::vector<int64_t> ended = end.rows;
    std::erase_if(ended, [&](int64_t row) { return std::ranges::find(kept, row) == kept.end(); });
    if (ended.empty()) continue;
    RETURN_IF_ERROR(transaction.Run(About("audit_end", kAuditEnd), quoted_table_, Array(ended),
                                    end.owner, end.outcome));
  }
  RETURN_IF_ERROR(transaction.Commit());
  return kept;
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::MarkPublished(
    const std::vector<PublishedRow>& rows, const std::string& owner,
    const std::vector<std::string>& ended) {
  Places places(rows.size());
  Array message_ids(rows.size() * 20);
  std::vector<int64_t> unblocking;  // only a row that failed before can have others held behind it
  std::vector<int64_t> retried;
  std::vector<int64_t> hits;
  for (const auto& [row, message_id, dedup_hit] : rows) {
    places.Add(*row);
    message_ids.AddIfAny(message_id);
    if (row->attempts > 0) unblocking.push_back(row->aggregate_hash);
    if (dedup_hit) {
      hits.push_back(row->sequence);
    } else if (row->attempts > 0) {
      retried.push_back(row->sequence);
    }
  }
  return Update(About("mark", kMark),
                Params(places.sequences, places.hashes, places.versions, places.tokens,
                       places.Leases(), Array(ended), message_ids),
                unblocking,
                {{retried, "outbox_flush_retry", owner}, {hits, "outbox_flush_dedup_hit", owner}});
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::MarkFailed(
    const std::vector<RowFailure>& rows, const std::string& owner,
    const std::vector<std::string>& ended) {
  Places places(rows.size());
  Array spent;
  Array delays;
  Array errors;
  Array codes;
  Array dead;
  Array taken;
  std::vector<int64_t> unblocking;
  std::vector<int64_t> died;
  for (const RowFailure& failure : rows) {
    places.Add(*failure.row);
    spent.Add(failure.spent_attempts);
    delays.Add(failure.delay.has_value() ? failure.delay->count() : -1);
    errors.AddIfAny(failure.error);
    codes.AddIfAny(failure.code);
    dead.Add(failure.dead);
    taken.AddIfAny(failure.row->taken_by.empty() ? ""
                                                 : nlohmann::json(failure.row->taken_by).dump());
    if (failure.frees_followers) unblocking.push_back(failure.row->aggregate_hash);
    if (failure.dead) died.push_back(failure.row->sequence);
  }
  return Update(About("fail", kFail),
                Params(places.sequences, places.hashes, places.versions, places.tokens,
                       places.Leases(), Array(ended), spent, delays, errors, codes, dead, taken),
                unblocking, {{died, "outbox_flush_dead", owner}});
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::Renew(const std::vector<RowPtr>& rows) {
  Places places(rows.size());
  for (const RowPtr& row : rows) places.Add(*row);
  return Update(About("renew", kRenew), Params(places.sequences, places.hashes, places.versions,
                                               places.tokens, places.Leases()));
}

absl::StatusOr<std::map<int64_t, std::string>> OutboxStore::AuditLost(
    const std::vector<int64_t>& sequences, const std::string& owner) {
  ASSIGN_OR_RETURN(
      const Result result,
      connection_.Execute(About("audit_lost", kAuditLost), quoted_table_, Array(sequences), owner));
  std::map<int64_t, std::string> states;
  for (const Row row : result) states[row.Int("sequence")] = row.Text("state");
  return states;
}

absl::StatusOr<int64_t> OutboxStore::AuditGone(const std::vector<RowName>& rows,
                                               const std::string& owner) {
  Array sequences;
  Array event_ids;
  Array tenants;
  Array types;
  Array ids;
  Array versions;
  for (const RowName& row : rows) {
    sequences.Add(row.sequence);
    event_ids.AddPlain(row.event_id.value());
    tenants.Add(row.tenant_id);
    types.Add(row.aggregate_type);
    ids.Add(row.aggregate_id);
    versions.Add(row.version);
  }
  return connection_.Affected(About("audit_gone", kAuditGone), quoted_table_, owner, sequences,
                              event_ids, tenants, types, ids, versions);
}

absl::StatusOr<std::optional<Millis>> OutboxStore::NextDue(const ClaimRequest& request,
                                                           const ClaimCursor& floor) {
  ASSIGN_OR_RETURN(
      const Result result,
      connection_.Execute(About("next_due", kNextDue), Array(request.shards), request.shard_count,
                          request.lock_ttl.count(), floor.available_at));
  const auto ms = result[0].OptionalInt("ms");
  if (!ms.has_value()) return std::nullopt;
  return std::optional(Millis(std::max<int64_t>(0, *ms) + 1));
}

absl::StatusOr<bool> OutboxStore::TryWakeLocks(const std::vector<int>& shards) {
  ASSIGN_OR_RETURN(const Result result,
                   connection_.Execute(kTryWakeLocks, outbox_.oid, Array(shards)));
  std::vector<int> taken;
  for (const Row row : result) {
    if (row.Bool("locked")) taken.push_back(static_cast<int>(row.Int("shard")));
  }
  if (taken.size() == shards.size()) return true;
  RETURN_IF_ERROR(WakeUnlock(taken));
  return false;
}

absl::Status OutboxStore::WakeUnlock(const std::vector<int>& shards) {
  if (shards.empty()) return absl::OkStatus();
  return connection_.Run(kWakeUnlock, outbox_.oid, Array(shards));
}

}  // namespace lockstep::publisher
