#pragma once

// The lease protocol of an outbox in SQL. {0} is the outbox, quoted. Times are the database's own,
// and statement_timestamp() because an index condition can't be volatile.
namespace lockstep::publisher::outbox_sql {

// Beside postgres::kPlannedOnce. Lease and mark need not be durable: losing one costs a duplicate,
// never a loss. Every statement below is driven by an index and its order; the planner, which does
// not know how few rows are pending, must not think otherwise.
inline constexpr char kSession[] =
    "SET synchronous_commit = off; SET enable_bitmapscan = off; SET enable_sort = off";

inline constexpr char kFind[] =
    "SELECT o.outbox::oid::bigint, o.shards, lockstep.wake_channel(o.outbox) "
    "FROM lockstep.outboxes o WHERE o.outbox = to_regclass($1)";

// The claim, in both its forms: $1 token, $2 owner, $3 lease in ms, $4 rows, $5 shards, $6 of how
// many, $7 and $8 the place after which to look, $9 live tokens of this owner, $10 topics to leave
// alone, $11 dead rows block. {1} is kCandidate, {2} kEarlier, {3} kClaimedRow.
//
// Lock first, filter second: `candidate` locks; only then is looked for earlier versions.
inline constexpr char kCandidate[] = R"sql(
  SELECT sequence, tenant_id, aggregate_type, aggregate_id, version, available_at, locked_at, ctid AS place
  FROM {0}
  WHERE published_at IS NULL
    AND available_at <= statement_timestamp()
    AND (available_at, sequence) > ($7::timestamptz, $8::bigint)
    AND (lock_token IS NULL OR (locked_at <= statement_timestamp() - $3::bigint * interval '1 ms'
                                AND lock_token <> ALL ($9::uuid[])))
    AND ($6::int = 1 OR lockstep.shard_of(aggregate_id, $6::int) = ANY ($5::int[]))
    AND topic <> ALL ($10::text[])
  ORDER BY available_at, sequence
  LIMIT $4::int
  FOR UPDATE SKIP LOCKED)sql";

// An unpublished version p of the aggregate of a, below its top, that is neither in this claim nor
// in this owner's hands already.
inline constexpr char kEarlier[] = R"sql(
      p.published_at IS NULL
      AND p.aggregate_id = a.aggregate_id AND p.version < a.top
      AND p.aggregate_type = a.aggregate_type
      AND p.tenant_id IS NOT DISTINCT FROM a.tenant_id
      AND ($11::boolean OR p.dead_at IS NULL)
      AND (p.lock_token IS NULL OR p.lock_token <> ALL ($9::uuid[]))
      AND p.sequence <> ALL (a.sequences))sql";

inline constexpr char kClaimedRow[] = R"sql(
       c.sequence, c.event_id, c.tenant_id, c.topic, c.aggregate_type, c.aggregate_id, c.event_type, c.version,
       c.schema_version, c.payload, c.content_type, c.attributes, c.traceparent, c.tracestate,
       to_char(c.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), c.created_at, c.attempts,
       lockstep.shard_of(c.aggregate_id, $6::int))sql";

// For any number of rows: `blocked` finds the earliest such version once per aggregate. Candidates
// above it are not taken, and pushed out of the way: behind a lease until it expires, behind a row
// that is due to that row's place, behind one that waits, is dead or quarantined out of the order
// for good ('infinity' = held) until the blocker's fate is known.
//
// Always answers the number of candidates, the last one's place and a moment a second ago, in its
// first four columns.
inline constexpr char kClaim[] = R"sql(
WITH candidate AS MATERIALIZED ({1}),
aggregate AS MATERIALIZED (
  SELECT tenant_id, aggregate_type, aggregate_id, max(version) AS top, array_agg(sequence) AS sequences,
         array_agg(version) AS versions, array_agg(locked_at IS NULL) AS fresh
  FROM candidate GROUP BY tenant_id, aggregate_type, aggregate_id
),
blocked AS MATERIALIZED (
  SELECT a.sequences, a.versions, a.fresh, b.version AS limit_version, b.until
  FROM aggregate a
  LEFT JOIN LATERAL (
    SELECT p.version,
           CASE
             WHEN p.dead_at IS NOT NULL OR p.quarantined_at IS NOT NULL THEN 'infinity'
             WHEN p.lock_token IS NOT NULL AND p.locked_at > statement_timestamp() - $3::bigint * interval '1 ms'
               THEN p.locked_at + $3::bigint * interval '1 ms'
             WHEN p.available_at > statement_timestamp() AND p.attempts > 0 THEN 'infinity'
             ELSE p.available_at
           END AS until
    FROM {0} p
    WHERE {2}
    ORDER BY p.version
    LIMIT 1
  ) b ON true
),
judged AS MATERIALIZED (
  SELECT r.sequence, r.fresh, CASE WHEN r.version > b.limit_version THEN b.until END AS until
  FROM blocked b, unnest(b.sequences, b.versions, b.fresh) AS r(sequence, version, fresh)
),
pushed AS (
  UPDATE {0} t SET available_at = j.until
  FROM judged j
  WHERE t.sequence = j.sequence AND j.until > t.available_at
),
claimed AS (
  UPDATE {0} t SET lock_token = $1::uuid, locked_by = $2::text, locked_at = clock_timestamp()
  FROM judged j
  WHERE t.sequence = j.sequence AND j.until IS NULL
  RETURNING t.*, j.fresh
)
SELECT n.candidates, n.last_available_at, n.last_sequence, statement_timestamp() - interval '1 s', {3}, c.fresh
FROM (SELECT count(*) AS candidates, max(available_at) AS last_available_at,
             (array_agg(sequence ORDER BY available_at DESC, sequence DESC))[1] AS last_sequence
      FROM candidate) n
LEFT JOIN claimed c ON true
ORDER BY c.sequence)sql";

// For a handful of rows, of which as a rule none is blocked: it does less, looks once per row, and
// leaves those that are blocked where they are. (By ctid, without a join or a NOT EXISTS: planned
// once, on a small table, those could go through all of a large one.) Answers as kClaim does, but
// no last place, and nothing at all when it took none.
inline constexpr char kClaimFew[] = R"sql(
WITH candidate AS MATERIALIZED ({1})
UPDATE {0} c SET lock_token = $1::uuid, locked_by = $2::text, locked_at = clock_timestamp()
WHERE c.ctid = ANY (ARRAY(
  SELECT a.place
  FROM (SELECT f.*, f.version AS top, ARRAY(SELECT sequence FROM candidate) AS sequences FROM candidate f) a
  WHERE (SELECT p.sequence FROM {0} p WHERE {2} ORDER BY p.version LIMIT 1) IS NULL))
RETURNING (SELECT count(*) FROM candidate), NULL, NULL, statement_timestamp() - interval '1 s', {3},
          (SELECT f.locked_at IS NULL FROM candidate f WHERE f.sequence = c.sequence))sql";

// $1 sequences, $2 tokens, $3 message ids. Answers the rows that were still ours.
inline constexpr char kMark[] = R"sql(
UPDATE {0} t
SET published_at = statement_timestamp(), message_id = m.message_id, lock_token = NULL, locked_by = NULL,
    last_error = NULL, error_code = NULL
FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS m(sequence, token, message_id)
WHERE t.sequence = m.sequence AND t.lock_token = m.token
RETURNING t.sequence)sql";

// $1 sequences, $2 tokens, $3 attempts to add, $4 delay in ms (negative = held), $5 error, $6 code,
// $7 dead.
inline constexpr char kFail[] = R"sql(
UPDATE {0} t
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
inline constexpr char kRenew[] = R"sql(
UPDATE {0} t SET locked_at = statement_timestamp()
FROM unnest($1::bigint[], $2::uuid[]) AS m(sequence, token)
WHERE t.sequence = m.sequence AND t.lock_token = m.token
RETURNING t.sequence)sql";

// The rows held behind blockers whose fate is known. $1 sequences of the blockers.
inline constexpr char kReleaseBehind[] = R"sql(
UPDATE {0} t SET available_at = statement_timestamp()
FROM (SELECT DISTINCT tenant_id, aggregate_type, aggregate_id FROM {0} WHERE sequence = ANY ($1::bigint[])) c
WHERE t.published_at IS NULL AND t.available_at = 'infinity' AND t.dead_at IS NULL AND t.quarantined_at IS NULL
  AND t.aggregate_id = c.aggregate_id AND t.aggregate_type = c.aggregate_type
  AND t.tenant_id IS NOT DISTINCT FROM c.tenant_id)sql";

inline constexpr char kReleaseHeld[] = "SELECT lockstep.release_held($1::regclass, $2::boolean)";

// A lost lease leaves the row's present state in the audit, and nothing else. $1 the outbox,
// $2 sequences, $3 owner.
inline constexpr char kAuditLost[] = R"sql(
INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, detail)
SELECT $3::text, 'outbox_flush_conflict', lockstep.outbox_name($1::regclass), sequence, event_id,
       jsonb_build_object('published_at', published_at, 'message_id', message_id, 'attempts', attempts,
                          'available_at', available_at::text, 'lock_token', lock_token, 'locked_by', locked_by,
                          'locked_at', locked_at, 'error_code', error_code, 'dead_at', dead_at,
                          'quarantined_at', quarantined_at)
FROM {0} WHERE sequence = ANY ($2::bigint[])
RETURNING sequence, jsonb_strip_nulls(detail)::text)sql";

// How long nothing will fall due, in ms, or NULL: the next retry, or the end of a lease of another.
// $1 shards, $2 of how many, $3 lease in ms, $4 the place below which nothing is looked for.
inline constexpr char kNextDue[] = R"sql(
SELECT (extract(epoch FROM least(
  (SELECT min(available_at) FROM {0}
   WHERE published_at IS NULL AND available_at > statement_timestamp() AND available_at < 'infinity'
     AND ($2::int = 1 OR lockstep.shard_of(aggregate_id, $2::int) = ANY ($1::int[]))),
  (SELECT min(locked_at) + $3::bigint * interval '1 ms' FROM {0}
   WHERE published_at IS NULL AND available_at <= statement_timestamp() AND available_at >= $4::timestamptz
     AND lock_token IS NOT NULL
     AND ($2::int = 1 OR lockstep.shard_of(aggregate_id, $2::int) = ANY ($1::int[])))
) - statement_timestamp()) * 1000)::bigint)sql";

// For the gauges: pending and leased rows, counted up to a bound ($1).
inline constexpr char kBacklog[] = R"sql(
SELECT count(*), count(lock_token) FROM
  (SELECT lock_token FROM {0} WHERE published_at IS NULL AND dead_at IS NULL AND quarantined_at IS NULL
   LIMIT $1::bigint) p)sql";

inline constexpr char kRetries[] = R"sql(
SELECT count(*) FROM {0}
WHERE published_at IS NULL AND attempts > 0 AND dead_at IS NULL AND quarantined_at IS NULL)sql";

// $1 the outbox's oid, $2 shards. An owner that wants to be told of rows holds them; see
// lockstep.enqueue.
inline constexpr char kTryWakeLocks[] =
    "SELECT s, pg_try_advisory_lock(lockstep.lock_key('wake', $1::oid::regclass, s)) "
    "FROM unnest($2::int[]) s";
inline constexpr char kWakeUnlock[] =
    "SELECT count(pg_advisory_unlock(lockstep.lock_key('wake', $1::oid::regclass, s))) "
    "FROM unnest($2::int[]) s";

// The cleaner. $1 age in ms, $2 rows. SKIP LOCKED: a reader of a row must not stop it.
inline constexpr char kCleanPublished[] = R"sql(
DELETE FROM {0} WHERE sequence IN (
  SELECT sequence FROM {0}
  WHERE published_at < statement_timestamp() - $1::bigint * interval '1 ms'
  ORDER BY published_at, sequence LIMIT $2::int FOR UPDATE SKIP LOCKED))sql";
inline constexpr char kCleanDead[] = R"sql(
DELETE FROM {0} WHERE sequence IN (
  SELECT sequence FROM {0}
  WHERE published_at IS NULL AND available_at = 'infinity' AND quarantined_at IS NULL
    AND dead_at < statement_timestamp() - $1::bigint * interval '1 ms'
  ORDER BY sequence LIMIT $2::int FOR UPDATE SKIP LOCKED))sql";

// The newest committed position, for heartbeats.
inline constexpr char kPosition[] = "SELECT coalesce(max(sequence), 0) FROM {0}";

}  // namespace lockstep::publisher::outbox_sql
