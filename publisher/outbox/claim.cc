#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
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
// The leases that count: those that run, and this owner's own. One that begins later than one could
// end was written before the clock went back: it is none. No row is claimed before it is available,
// so the leases of rows from $7 on are not older than that.
//
// Of NOT IN, Postgres makes a hash table, once; of <> ALL it would not.
constexpr char kHeld[] = R"sql(
  SELECT l.token, l.sequences
  FROM {leases} l
  WHERE l.claimed_at >= $7::timestamptz
    AND (l.token = ANY ($9::uuid[])
         OR (l.locked_at > statement_timestamp() - $3::bigint * interval '1 ms'
             AND l.locked_at <= statement_timestamp() + $3::bigint * interval '1 ms')))sql";

// Lock first, filter second: `candidate` locks; only then is looked for other claims (`change`) and
// for earlier versions. Two claims that are under way at once don't see each other's leases. But of
// the rows that this one has locked, the other has let go, and so ended; {changed_leases} looks at
// the leases anew, after the locks.
constexpr char kCandidate[] = R"sql(
  SELECT p.sequence, p.aggregate_hash, p.version, p.available_at, p.attempts, p.locked_at, p.taken_by
  FROM {pending} p
  WHERE p.available_at <= statement_timestamp()
    AND (p.available_at, p.sequence) > ($7::timestamptz, $8::bigint)
    AND p.sequence NOT IN (SELECT unnest(h.sequences) FROM held h)
    AND ($6::int = 1 OR lockstep.shard_of_hash(p.aggregate_hash, $6::int) = ANY ($5::int[]))
    AND (cardinality($10::text[]) = 0
         OR (SELECT e.topic FROM {outbox} e WHERE e.sequence = p.sequence) <> ALL ($10::text[]))
  ORDER BY p.available_at, p.sequence
  LIMIT $4::int
  FOR UPDATE SKIP LOCKED)sql";

constexpr char kLeaseChanges[] = R"sql(
  SELECT x.busy, x.lapsed
  FROM (SELECT array_agg(sequence) AS sequences FROM candidate) c,
       {changed_leases}($7::timestamptz, coalesce((SELECT array_agg(token) FROM held), '{}'), $9::uuid[],
                        $3::bigint * interval '1 ms', c.sequences) x)sql";

constexpr char kGood[] = R"sql(
good AS MATERIALIZED (
  SELECT c.*, x.lapsed IS NOT NULL AND c.sequence = ANY (x.lapsed) AS lapsed
  FROM candidate c, change x WHERE x.busy IS NULL OR c.sequence <> ALL (x.busy)))sql";

// An unpublished version p of the aggregate of a, below its top, that is neither in this claim nor
// in this owner's hands already.
constexpr char kEarlier[] = R"sql(
      p.aggregate_hash = a.aggregate_hash AND p.version < a.top
      AND ($11::boolean OR p.dead_at IS NULL)
      AND p.sequence <> ALL (a.sequences)
      AND p.sequence NOT IN (SELECT unnest(l.sequences) FROM {leases} l WHERE l.token = ANY ($9::uuid[])))sql";

constexpr char kClaimedRow[] = R"sql(
       e.sequence, e.event_id, e.tenant_id, e.topic, e.aggregate_type, e.aggregate_id, e.event_type, e.version,
       e.schema_version, e.payload, e.content_type, e.attributes, e.traceparent, e.tracestate,
       to_char(e.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS occurred_at,
       e.created_at, c.attempts, c.taken_by, e.target_space, e.payload_sha, c.aggregate_hash,
       lockstep.shard_of_hash(c.aggregate_hash, $6::int) AS shard)sql";

// For any number of rows: `blocked` finds the earliest such version once per aggregate. Candidates
// above it are not taken, and pushed out of the way: behind a lease until it expires, behind a row
// that is due to that row's place, behind one that waits, is dead or quarantined out of the order
// for good ('infinity' = held) until the blocker's fate is known.
//
// Always answers the number of candidates, the last one's place and a moment a second ago; with no
// row claimed, in one row without a sequence.
constexpr char kClaim[] = R"sql(
WITH held AS MATERIALIZED ({held}),
candidate AS MATERIALIZED ({candidate}),
change AS MATERIALIZED ({change}),
{good},
aggregate AS MATERIALIZED (
  SELECT aggregate_hash, max(version) AS top, array_agg(sequence) AS sequences, array_agg(version) AS versions,
         array_agg(attempts) AS attempts, array_agg(taken_by) AS taken_by,
         array_agg(locked_at IS NULL AND NOT lapsed) AS fresh
  FROM good GROUP BY aggregate_hash
),
blocked AS MATERIALIZED (
  SELECT a.*, b.version AS limit_version, b.until
  FROM aggregate a
  LEFT JOIN LATERAL (
    SELECT p.version,
           CASE
             WHEN p.dead_at IS NOT NULL OR p.quarantined_at IS NOT NULL THEN 'infinity'
             ELSE coalesce(
               (SELECT max(l.locked_at) + $3::bigint * interval '1 ms' FROM {leases} l
                WHERE l.claimed_at >= p.available_at AND p.sequence = ANY (l.sequences)
                  AND l.locked_at > statement_timestamp() - $3::bigint * interval '1 ms'
                  AND l.locked_at <= statement_timestamp() + $3::bigint * interval '1 ms'),
               CASE WHEN p.available_at > statement_timestamp() AND p.attempts > 0 THEN 'infinity'
                    ELSE p.available_at END)
           END AS until
    FROM {pending} p
    WHERE {earlier}
    ORDER BY p.version
    LIMIT 1
  ) b ON true
),
judged AS MATERIALIZED (
  SELECT b.aggregate_hash, r.*, CASE WHEN r.version > b.limit_version THEN b.until END AS until
  FROM blocked b, unnest(b.sequences, b.versions, b.attempts, b.taken_by, b.fresh)
                    AS r(sequence, version, attempts, taken_by, fresh)
),
pushed AS (
  UPDATE {pending} t SET available_at = j.until, locked_at = coalesce(t.locked_at, CASE WHEN NOT j.fresh THEN statement_timestamp() END)
  FROM judged j
  WHERE t.aggregate_hash = j.aggregate_hash AND t.version = j.version AND t.sequence = j.sequence
    AND j.until > t.available_at
),
lease AS (
  INSERT INTO {leases} (token, owner, claimed_at, locked_at, sequences)
  SELECT $1::uuid, $2::text, greatest(clock_timestamp(), statement_timestamp()), clock_timestamp(), array_agg(j.sequence)
  FROM judged j WHERE j.until IS NULL HAVING count(*) > 0
)
SELECT n.candidates, n.last_available_at, n.last_sequence, statement_timestamp() - interval '1 s' AS a_second_ago,
       {row}, c.fresh
FROM (SELECT count(*) AS candidates, max(available_at) AS last_available_at,
             (array_agg(sequence ORDER BY available_at DESC, sequence DESC))[1] AS last_sequence
      FROM candidate) n
LEFT JOIN (judged c JOIN {outbox} e ON e.sequence = c.sequence) ON c.until IS NULL
ORDER BY e.sequence)sql";

// For a handful of rows, of which as a rule none is blocked: it does less, looks once per row, and
// leaves those that are blocked where they are. Answers as kClaim does, but no last place, and
// nothing at all when it took none.
constexpr char kClaimFew[] = R"sql(
WITH held AS MATERIALIZED ({held}),
candidate AS MATERIALIZED ({candidate}),
change AS MATERIALIZED ({change}),
{good},
free AS MATERIALIZED (
  SELECT a.sequence, a.aggregate_hash, a.attempts, a.taken_by, a.locked_at IS NULL AND NOT a.lapsed AS fresh
  FROM (SELECT g.*, g.version AS top, ARRAY(SELECT sequence FROM good) AS sequences FROM good g) a
  WHERE (SELECT p.sequence FROM {pending} p WHERE {earlier} ORDER BY p.version LIMIT 1) IS NULL
),
lease AS (
  INSERT INTO {leases} (token, owner, claimed_at, locked_at, sequences)
  SELECT $1::uuid, $2::text, greatest(clock_timestamp(), statement_timestamp()), clock_timestamp(), array_agg(f.sequence)
  FROM free f HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM candidate) AS candidates, NULL AS last_available_at, NULL AS last_sequence,
       statement_timestamp() - interval '1 s' AS a_second_ago, {row}, c.fresh
FROM free c JOIN {outbox} e ON e.sequence = c.sequence)sql";

// Candidates of a claim for which little is done beforehand.
constexpr int kFew = 8;

std::string WithParts(std::string_view sql) {
  return postgres::FillNames(sql, {{"held", kHeld},
                                   {"candidate", kCandidate},
                                   {"change", kLeaseChanges},
                                   {"good", kGood},
                                   {"earlier", kEarlier},
                                   {"row", kClaimedRow}});
}

std::map<std::string, std::string> ReadTakenBy(const std::string& text) {
  std::map<std::string, std::string> taken;
  const auto routes = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const auto& [route, message_id] : routes.items()) {
    taken[route] = message_id.is_string() ? message_id.get<std::string>() : "";
  }
  return taken;
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
  if (const auto taken_by = from.OptionalText("taken_by")) row.taken_by = ReadTakenBy(*taken_by);
  if (const auto space = from.OptionalText("target_space")) {
    row.target_space = *space;
    row.payload_sha = from.Bytes("payload_sha");
  }
  row.aggregate_hash = from.Int("aggregate_hash");
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
