#include <algorithm>
#include <iterator>
#include <utility>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "publisher/outbox/outbox_store.h"

namespace lockstep::publisher {
namespace {

using postgres::Array;
using postgres::Result;
using postgres::Row;
using postgres::Statement;

// The claim, in both its forms: $1 token, $2 owner, $3 lease in ms, $4 rows, $5 shards, $6 of how
// many, $7 and $8 the place after which to look, $9 live tokens of this owner, $10 topics to leave
// alone, $11 dead rows block. Times are the database's own, and statement_timestamp() because an
// index condition can't be volatile.
//
// A lease that begins later than one could end was written before the clock went back: it is none.
//
// Lock first, filter second: `candidate` locks; only then is looked for earlier versions.
constexpr char kCandidate[] = R"sql(
  SELECT sequence, tenant_id, aggregate_type, aggregate_id, version, available_at, locked_at
  FROM {outbox}
  WHERE published_at IS NULL
    AND available_at <= statement_timestamp()
    AND (available_at, sequence) > ($7::timestamptz, $8::bigint)
    AND (lock_token IS NULL OR ((locked_at <= statement_timestamp() - $3::bigint * interval '1 ms'
                                 OR locked_at > statement_timestamp() + $3::bigint * interval '1 ms')
                                AND lock_token <> ALL ($9::uuid[])))
    AND ($6::int = 1 OR lockstep.shard_of(aggregate_id, $6::int) = ANY ($5::int[]))
    AND topic <> ALL ($10::text[])
  ORDER BY available_at, sequence
  LIMIT $4::int
  FOR UPDATE SKIP LOCKED)sql";

// An unpublished version p of the aggregate of a, below its top, that is neither in this claim nor
// in this owner's hands already.
constexpr char kEarlier[] = R"sql(
      p.published_at IS NULL
      AND p.aggregate_id = a.aggregate_id AND p.version < a.top
      AND p.aggregate_type = a.aggregate_type
      AND p.tenant_id IS NOT DISTINCT FROM a.tenant_id
      AND ($11::boolean OR p.dead_at IS NULL)
      AND (p.lock_token IS NULL OR p.lock_token <> ALL ($9::uuid[]))
      AND p.sequence <> ALL (a.sequences))sql";

constexpr char kClaimedRow[] = R"sql(
       c.sequence, c.event_id, c.tenant_id, c.topic, c.aggregate_type, c.aggregate_id, c.event_type, c.version,
       c.schema_version, c.payload, c.content_type, c.attributes, c.traceparent, c.tracestate,
       to_char(c.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS occurred_at,
       c.created_at, c.attempts, lockstep.shard_of(c.aggregate_id, $6::int) AS shard)sql";

// For any number of rows: `blocked` finds the earliest such version once per aggregate. Candidates
// above it are not taken, and pushed out of the way: behind a lease until it expires, behind a row
// that is due to that row's place, behind one that waits, is dead or quarantined out of the order
// for good ('infinity' = held) until the blocker's fate is known.
//
// Always answers the number of candidates, the last one's place and a moment a second ago; with no
// row claimed, in one row without a sequence.
constexpr char kClaim[] = R"sql(
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

// For a handful of rows, of which as a rule none is blocked: it does less, looks once per row, and
// leaves those that are blocked where they are. (By number, without a join or a NOT EXISTS: planned
// once, on a small table, those could go through all of a large one. Not by ctid: a row that was
// touched since the snapshot is locked in its new place, where this statement does not see it.)
// Answers as kClaim does, but no last place, and nothing at all when it took none.
constexpr char kClaimFew[] = R"sql(
WITH candidate AS MATERIALIZED ({candidate})
UPDATE {outbox} c SET lock_token = $1::uuid, locked_by = $2::text, locked_at = clock_timestamp()
WHERE c.sequence = ANY (ARRAY(
  SELECT a.sequence
  FROM (SELECT f.*, f.version AS top, ARRAY(SELECT sequence FROM candidate) AS sequences FROM candidate f) a
  WHERE (SELECT p.sequence FROM {outbox} p WHERE {earlier} ORDER BY p.version LIMIT 1) IS NULL))
RETURNING (SELECT count(*) FROM candidate) AS candidates, NULL AS last_available_at, NULL AS last_sequence,
          statement_timestamp() - interval '1 s' AS a_second_ago, {row},
          (SELECT f.locked_at IS NULL FROM candidate f WHERE f.sequence = c.sequence) AS fresh)sql";

// Candidates of a claim for which little is done beforehand.
constexpr int kFew = 8;

std::string WithParts(std::string_view sql) {
  return postgres::FillNames(
      sql, {{"candidate", kCandidate}, {"earlier", kEarlier}, {"row", kClaimedRow}});
}

OutboxRow ReadRow(const Row& from, const std::string& token) {
  OutboxRow row;
  row.sequence = from.Int("sequence");
  row.event_id = EventId(from.String("event_id"));
  row.tenant_id = from.OptionalText("tenant_id");
  row.topic = from.Text("topic");
  row.aggregate_type = from.Text("aggregate_type");
  row.aggregate_id = from.Text("aggregate_id");
  row.event_type = from.Text("event_type");
  row.version = from.Int("version");
  row.schema_version = from.Int("schema_version");
  row.payload = from.Bytes("payload");
  row.content_type = from.Text("content_type");
  row.attributes = from.Text("attributes");
  row.traceparent = from.OptionalText("traceparent");
  row.tracestate = from.OptionalText("tracestate");
  row.occurred_at = from.Text("occurred_at");
  row.created_at = from.Time("created_at");
  row.attempts = static_cast<int>(from.Int("attempts"));
  row.shard = static_cast<int>(from.Int("shard"));
  row.first_claim = from.Bool("fresh");
  row.lock_token = token;
  return row;
}

}  // namespace

absl::StatusOr<Claim> OutboxStore::ClaimRows(const ClaimRequest& request, ClaimCursor& cursor) {
  if (request.few && request.rows > kFew) return TakeFew(request, cursor);
  return Take(/*few=*/false, request, cursor);
}

absl::StatusOr<Claim> OutboxStore::Take(bool few, const ClaimRequest& request,
                                        ClaimCursor& cursor) {
  static const std::string claim_sql = WithParts(kClaim);
  static const std::string claim_few_sql = WithParts(kClaimFew);
  const Statement statement = few ? About("claim_few", claim_few_sql) : About("claim", claim_sql);
  ASSIGN_OR_RETURN(
      const Result result,
      connection_.Execute(statement, request.token, request.owner, request.lock_ttl.count(),
                          request.rows, Array(request.shards), request.shard_count,
                          cursor.available_at, cursor.sequence, Array(request.live_tokens),
                          Array(request.paused_topics), request.dead_blocks));
  Claim claim;
  if (result.empty()) return claim;
  const Row first = result[0];
  claim.candidates = static_cast<int>(first.Int("candidates"));
  claim.a_second_ago = first.Text("a_second_ago");
  if (!first.IsNull("last_available_at")) {
    cursor.available_at = first.Text("last_available_at");
    cursor.sequence = first.Int("last_sequence");
  }
  if (first.IsNull("sequence")) return claim;
  for (const Row row : result) claim.rows.push_back(ReadRow(row, request.token));
  return claim;
}

// What there is beyond a handful, or blocked among it, is the other statement's, in the same place:
// to it, those taken here are in this owner's hands already. It has a token of its own: if its
// answer is lost, what it took is in nobody's hands, and must not pass for ours.
absl::StatusOr<Claim> OutboxStore::TakeFew(const ClaimRequest& request, ClaimCursor& cursor) {
  ClaimRequest part = request;
  part.rows = kFew;
  ASSIGN_OR_RETURN(Claim few, Take(/*few=*/true, part, cursor));
  const int taken = static_cast<int>(few.rows.size());
  if (taken == 0 || taken < few.candidates || taken == kFew) {
    part.rows = request.rows - taken;
    part.token = request.rest_token;
    if (taken > 0) part.live_tokens.push_back(request.token);
    auto rest = Take(/*few=*/false, part, cursor);
    if (!rest.ok() && taken == 0) return rest.status();
    // Those that were taken are not lost with it: the next claim meets the same trouble.
    few.candidates = rest.ok() ? taken + rest->candidates : request.rows;
    if (rest.ok()) {
      few.a_second_ago = std::move(rest->a_second_ago);
      std::move(rest->rows.begin(), rest->rows.end(), std::back_inserter(few.rows));
    }
  }
  std::sort(few.rows.begin(), few.rows.end(),
            [](const OutboxRow& a, const OutboxRow& b) { return a.sequence < b.sequence; });
  return few;
}

}  // namespace lockstep::publisher
