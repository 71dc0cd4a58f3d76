#include "publisher/outbox/outbox_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using postgres::Array;
using postgres::Params;
using postgres::Result;
using postgres::Row;
using postgres::Statement;

// $1 sequences, $2 tokens, $3 message ids. Answers the rows that were still ours.
constexpr char kMark[] = R"sql(
UPDATE {outbox} t
SET published_at = statement_timestamp(), message_id = m.message_id, lock_token = NULL, locked_by = NULL,
    last_error = NULL, error_code = NULL
FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS m(sequence, token, message_id)
WHERE t.sequence = m.sequence AND t.lock_token = m.token
RETURNING t.sequence)sql";

// $1 sequences, $2 tokens, $3 attempts to add, $4 delay in ms (negative = held), $5 error, $6 code,
// $7 dead.
constexpr char kFail[] = R"sql(
UPDATE {outbox} t
SET attempts = t.attempts + m.spent,
    available_at = CASE WHEN m.dead OR m.delay < 0 THEN 'infinity'
                        WHEN m.delay = 0 THEN t.available_at
                        ELSE statement_timestamp() + m.delay * interval '1 ms' END,
    dead_at = CASE WHEN m.dead THEN statement_timestamp() END,
    last_error = coalesce(m.error, t.last_error), error_code = coalesce(m.code, t.error_code),
    lock_token = NULL, locked_by = NULL
FROM unnest($1::bigint[], $2::uuid[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::boolean[])
     AS m(sequence, token, spent, delay, error, code, dead)
WHERE t.sequence = m.sequence AND t.lock_token = m.token
RETURNING t.sequence)sql";

// $1 sequences, $2 tokens.
constexpr char kRenew[] = R"sql(
UPDATE {outbox} t SET locked_at = statement_timestamp()
FROM unnest($1::bigint[], $2::uuid[]) AS m(sequence, token)
WHERE t.sequence = m.sequence AND t.lock_token = m.token
RETURNING t.sequence)sql";

// The rows held behind blockers whose fate is known. $1 sequences of the blockers.
constexpr char kReleaseBehind[] = R"sql(
UPDATE {outbox} t SET available_at = statement_timestamp()
FROM (SELECT DISTINCT tenant_id, aggregate_type, aggregate_id FROM {outbox} WHERE sequence = ANY ($1::bigint[])) c
WHERE t.published_at IS NULL AND t.available_at = 'infinity' AND t.dead_at IS NULL AND t.quarantined_at IS NULL
  AND t.aggregate_id = c.aggregate_id AND t.aggregate_type = c.aggregate_type
  AND t.tenant_id IS NOT DISTINCT FROM c.tenant_id)sql";

// How rows ended that did not simply pass. $1 the outbox, $2 sequences, $3 owner, $4 outcome.
constexpr char kAuditEnd[] = R"sql(
INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, detail)
SELECT $3::text, $4::text, lockstep.outbox_name($1::regclass), sequence, event_id,
       jsonb_strip_nulls(jsonb_build_object('attempts', attempts, 'error_code', error_code, 'message_id', message_id))
FROM {outbox} WHERE sequence = ANY ($2::bigint[]))sql";

// A lost lease leaves the row's present state in the audit, and nothing else. $1 the outbox,
// $2 sequences, $3 owner.
constexpr char kAuditLost[] = R"sql(
INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, detail)
SELECT $3::text, 'outbox_flush_conflict', lockstep.outbox_name($1::regclass), sequence, event_id,
       jsonb_build_object('published_at', published_at, 'message_id', message_id, 'attempts', attempts,
                          'available_at', available_at::text, 'lock_token', lock_token, 'locked_by', locked_by,
                          'locked_at', locked_at, 'error_code', error_code, 'dead_at', dead_at,
                          'quarantined_at', quarantined_at)
FROM {outbox} WHERE sequence = ANY ($2::bigint[])
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
  (SELECT min(available_at) FROM {outbox}
   WHERE published_at IS NULL AND available_at > statement_timestamp() AND available_at < 'infinity'
     AND ($2::int = 1 OR lockstep.shard_of(aggregate_id, $2::int) = ANY ($1::int[]))),
  (SELECT min(locked_at) + $3::bigint * interval '1 ms' FROM {outbox}
   WHERE published_at IS NULL AND available_at <= statement_timestamp() AND available_at >= $4::timestamptz
     AND lock_token IS NOT NULL
     AND ($2::int = 1 OR lockstep.shard_of(aggregate_id, $2::int) = ANY ($1::int[])))
) - statement_timestamp()) * 1000)::bigint AS ms)sql";

// $1 the outbox's oid, $2 shards. An owner that wants to be told of rows holds them; see
// lockstep.enqueue.
constexpr char kTryWakeLocks[] = R"sql(
SELECT s AS shard, pg_try_advisory_lock(lockstep.lock_key('wake', $1::oid::regclass, s)) AS locked
FROM unnest($2::int[]) s)sql";
constexpr char kWakeUnlock[] = R"sql(
SELECT count(pg_advisory_unlock(lockstep.lock_key('wake', $1::oid::regclass, s)))
FROM unnest($2::int[]) s)sql";

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
            postgres::FillNames(sql, {{"outbox", quoted_table_}})};
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
                                                         const Ends& ends) {
  if (unblocking.empty() && ends.rows.empty()) {
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
  std::vector<int64_t> ended = ends.rows;
  std::erase_if(ended, [&](int64_t row) { return std::ranges::find(kept, row) == kept.end(); });
  if (!ended.empty()) {
    RETURN_IF_ERROR(transaction.Run(About("audit_end", kAuditEnd), quoted_table_, Array(ended),
                                    ends.owner, ends.outcome));
  }
  RETURN_IF_ERROR(transaction.Commit());
  return kept;
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::MarkPublished(
    const std::vector<PublishedRow>& rows, const std::string& owner) {
  Array sequences(rows.size() * 10);
  Array tokens(rows.size() * 40);
  Array message_ids(rows.size() * 20);
  std::vector<int64_t> unblocking;  // only a row that failed before can have others held behind it
  for (const auto& [row, message_id] : rows) {
    sequences.Add(row->sequence);
    tokens.AddPlain(row->lock_token);
    message_ids.AddIfAny(message_id);
    if (row->attempts > 0) unblocking.push_back(row->sequence);
  }
  return Update(About("mark", kMark), Params(sequences, tokens, message_ids), unblocking,
                {unblocking, "outbox_flush_retry", owner});
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::MarkFailed(const std::vector<RowFailure>& rows,
                                                             const std::string& owner) {
  Array sequences;
  Array tokens;
  Array spent;
  Array delays;
  Array errors;
  Array codes;
  Array dead;
  std::vector<int64_t> unblocking;
  std::vector<int64_t> died;
  for (const RowFailure& failure : rows) {
    sequences.Add(failure.row->sequence);
    tokens.AddPlain(failure.row->lock_token);
    spent.Add(failure.spent_attempts);
    delays.Add(failure.delay.has_value() ? failure.delay->count() : -1);
    errors.AddIfAny(failure.error);
    codes.AddIfAny(failure.code);
    dead.Add(failure.dead);
    if (failure.frees_followers) unblocking.push_back(failure.row->sequence);
    if (failure.dead) died.push_back(failure.row->sequence);
  }
  return Update(About("fail", kFail), Params(sequences, tokens, spent, delays, errors, codes, dead),
                unblocking, {died, "outbox_flush_dead", owner});
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::Renew(const std::vector<RowPtr>& rows) {
  Array sequences;
  Array tokens;
  for (const RowPtr& row : rows) {
    sequences.Add(row->sequence);
    tokens.AddPlain(row->lock_token);
  }
  return Update(About("renew", kRenew), Params(sequences, tokens));
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
