#pragma once

// Claim and mark of the outbox of landed_outbox.sql, as they were.
namespace lockstep::bench::landed {

inline constexpr char kCandidate[] = R"sql(
  SELECT sequence, tenant_id, aggregate_type, aggregate_id, version, available_at, locked_at
  FROM {outbox}
  WHERE published_at IS NULL
    AND available_at <= statement_timestamp()
    AND (available_at, sequence) > ($7::timestamptz, $8::bigint)
    AND (lock_token IS NULL OR ((locked_at <= statement_timestamp() - $3::bigint * interval '1 ms'
                                 OR locked_at > statement_timestamp() + $3::bigint * interval '1 ms')
                                AND lock_token <> ALL ($9::uuid[])))
    AND ($6::int = 1 OR landed.shard_of(aggregate_id, $6::int) = ANY ($5::int[]))
    AND topic <> ALL ($10::text[])
  ORDER BY available_at, sequence
  LIMIT $4::int
  FOR UPDATE SKIP LOCKED)sql";

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
       to_char(c.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS occurred_at,
       c.created_at, c.attempts, c.taken_by, c.target_space, c.payload_sha, landed.shard_of(c.aggregate_id, $6::int) AS shard)sql";

inline constexpr char kClaim[] = R"sql(
WITH candidate AS MATERIALIZED ({candidate}),
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
                  AND p.locked_at <= statement_timestamp() + $3::bigint * interval '1 ms'
               THEN p.locked_at + $3::bigint * interval '1 ms'
             WHEN p.available_at > statement_timestamp() AND p.attempts > 0 THEN 'infinity'
             ELSE p.available_at
           END AS until
    FROM {outbox} p
    WHERE {earlier}
    ORDER BY p.version
    LIMIT 1
  ) b ON true
),
judged AS MATERIALIZED (
  SELECT r.sequence, r.fresh, CASE WHEN r.version > b.limit_version THEN b.until END AS until
  FROM blocked b, unnest(b.sequences, b.versions, b.fresh) AS r(sequence, version, fresh)
),
pushed AS (
  UPDATE {outbox} t SET available_at = j.until
  FROM judged j
  WHERE t.sequence = j.sequence AND j.until > t.available_at
),
claimed AS (
  UPDATE {outbox} t SET lock_token = $1::uuid, locked_by = $2::text, locked_at = clock_timestamp()
  FROM judged j
  WHERE t.sequence = j.sequence AND j.until IS NULL
  RETURNING t.*, j.fresh
)
SELECT n.candidates, n.last_available_at, n.last_sequence, statement_timestamp() - interval '1 s' AS a_second_ago,
       {row}, c.fresh
FROM (SELECT count(*) AS candidates, max(available_at) AS last_available_at,
             (array_agg(sequence ORDER BY available_at DESC, sequence DESC))[1] AS last_sequence
      FROM candidate) n
LEFT JOIN claimed c ON true
ORDER BY c.sequence)sql";

inline constexpr char kMark[] = R"sql(
UPDATE {outbox} t
SET published_at = statement_timestamp(), message_id = m.message_id, lock_token = NULL, locked_by = NULL,
    last_error = NULL, error_code = NULL
FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS m(sequence, token, message_id)
WHERE t.sequence = m.sequence AND t.lock_token = m.token
RETURNING t.sequence)sql";

}  // namespace lockstep::bench::landed
