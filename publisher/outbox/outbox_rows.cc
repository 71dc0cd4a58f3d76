#include "publisher/outbox/outbox_rows.h"

#include "envelope/event.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using postgres::FillNames;
using postgres::QualifiedName;
using postgres::Result;
using postgres::Row;

// Counting further would cost more than it tells.
constexpr int64_t kCountAtMost = 1'000'000;

// A row that a clock which went back has left in the future is due earlier than it was made.
constexpr char kBacklog[] = R"sql(
SELECT b.pending, b.locked,
       greatest(0, extract(epoch FROM now() - least(b.due, (SELECT e.created_at FROM {outbox} e WHERE e.sequence = b.first)))
                     * 1000)::bigint AS oldest_ms
FROM (SELECT count(*) AS pending,
             count(*) FILTER (WHERE p.sequence IN (SELECT unnest(l.sequences) FROM {leases} l)) AS locked,
             min(p.available_at) FILTER (WHERE p.available_at < 'infinity') AS due,
             min(p.sequence) FILTER (WHERE p.available_at < 'infinity') AS first
      FROM (SELECT sequence, available_at FROM {pending}
            WHERE dead_at IS NULL AND quarantined_at IS NULL
            LIMIT $1::bigint) p) b)sql";

constexpr char kDeadCounts[] = R"sql(
SELECT count(*) FILTER (WHERE quarantined_at IS NULL) AS dead, count(quarantined_at) AS quarantined
FROM (SELECT quarantined_at FROM {pending}
      WHERE available_at = 'infinity'
        AND (dead_at IS NOT NULL OR quarantined_at IS NOT NULL)
      LIMIT $1::bigint) dead)sql";

constexpr char kNewestDead[] = R"sql(
SELECT e.sequence, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.version, e.topic,
       d.error_code, d.last_error, d.attempts, d.dead_at,
       (SELECT count(*)
        FROM (SELECT 1 FROM {pending} h
              WHERE h.aggregate_hash = d.aggregate_hash AND h.version > d.version
                AND h.dead_at IS NULL AND h.quarantined_at IS NULL
              LIMIT 1000) behind) AS held
FROM (SELECT * FROM {pending}
      WHERE available_at = 'infinity' AND dead_at IS NOT NULL AND quarantined_at IS NULL
      ORDER BY sequence DESC
      LIMIT 50) d
JOIN {outbox} e ON e.sequence = d.sequence
ORDER BY e.sequence DESC)sql";

// $1 the outbox, $2 the newest audit row that was seen; NULL = only see which it is.
constexpr char kNewReplays[] = R"sql(
WITH seen AS (SELECT coalesce($2::bigint, (SELECT max(id) FROM lockstep.outbox_audit), 0) AS id)
SELECT coalesce(max(a.id), (SELECT id FROM seen)) AS newest,
       count(*) FILTER (WHERE a.action = 'replay' AND a.outbox = lockstep.outbox_name($1::regclass)) AS replays
FROM lockstep.outbox_audit a
WHERE a.id > (SELECT id FROM seen))sql";

constexpr char kRetries[] = R"sql(
SELECT count(*) FROM {pending}
WHERE (attempts > 0 OR error_code IS NOT NULL) AND dead_at IS NULL AND quarantined_at IS NULL)sql";

constexpr char kUnpublished[] = "SELECT count(*) FROM {pending}";
constexpr char kWaiting[] = R"sql(
SELECT count(*) FROM {pending} WHERE available_at < 'infinity' AND sequence <= $1)sql";
constexpr char kNewest[] = "SELECT coalesce(max(sequence), 0) FROM {outbox}";

constexpr char kNewestPublished[] = R"sql(
SELECT e.event_id, e.tenant_id, e.aggregate_id, e.version, coalesce(b.message_id, '') AS message_id
FROM (SELECT sequence, event_id, tenant_id, aggregate_type, aggregate_id, version
      FROM {outbox} WHERE sequence <= $2 ORDER BY sequence DESC LIMIT 10000) e
JOIN {published} b ON b.sequence = e.sequence
WHERE e.aggregate_type = $1
ORDER BY e.sequence DESC LIMIT 1)sql";

// A reader and an operator have no right to payloads, and so not to their size either.
constexpr char kMayReadPayload[] = R"sql(
SELECT coalesce(has_column_privilege(to_regclass($1), 'payload', 'SELECT'), true) AS may)sql";

// {state}: which rows; {payload_bytes}: NULL for those without the right.
constexpr char kFindRows[] = R"sql(
SELECT row_to_json(r)::text AS row
FROM (
  SELECT sequence, event_id, tenant_id, topic, aggregate_type, aggregate_id, event_type, version, attempts,
         available_at::text, published_at::text, dead_at::text, quarantined_at::text, locked_by, locked_at::text,
         lock_token IS NOT NULL AS leased, error_code, last_error, created_at::text, occurred_at::text, message_id,
         {payload_bytes} AS payload_bytes, content_type, schema_version, traceparent, taken_by, target_space
  FROM {status} s
  WHERE {state} AND (cardinality($1::text[]) = 0 OR event_id = ANY ($1::text[]::uuid[]))
    AND ($2 = '' OR aggregate_id IN ($2, substr($2, strpos($2, '/') + 1))
                    AND $2 IN (aggregate_id, aggregate_type || coalesce('@' || tenant_id, '') || '/' || aggregate_id))
    AND ($3 = '' OR tenant_id = $3) AND ($4 = '' OR topic = $4)
    AND ($5 = '' OR event_type = $5) AND ($6 = '' OR error_code = $6)
    AND ($7::bigint = 0 OR created_at < now() - $7::bigint * interval '1 ms')
    AND ($9 = '' OR aggregate_type = $9) AND ($10::bigint IS NULL OR version = $10)
    AND ($11 = '' OR message_id = $11)
  ORDER BY sequence
  LIMIT $8
) r)sql";

constexpr char kAudit[] = R"sql(
SELECT row_to_json(a)::text AS entry
FROM (
  SELECT at::text, actor, role, action, note FROM lockstep.outbox_audit
  WHERE outbox = lockstep.outbox_name($1::regclass) AND sequence = $2
  ORDER BY id
) a)sql";

constexpr char kChange[] =
    "SELECT lockstep.{action}($1::regclass, $2::bigint[], $3, nullif($4, ''))";

// $1 age in ms, $2 rows, $3 below which sequence. SKIP LOCKED: a reader of a row must not stop the
// cleaner.
constexpr char kDeletePublished[] = R"sql(
DELETE FROM {outbox} WHERE sequence = ANY (ARRAY(
  SELECT e.sequence FROM {published} b JOIN {outbox} e ON e.sequence = b.sequence
  WHERE b.published_at < statement_timestamp() - $1::bigint * interval '1 ms' AND b.sequence < $3::bigint
  ORDER BY b.published_at LIMIT $2::int FOR UPDATE OF e SKIP LOCKED)))sql";

constexpr char kDeleteDead[] = R"sql(
DELETE FROM {outbox} WHERE sequence = ANY (ARRAY(
  SELECT sequence FROM {pending}
  WHERE available_at = 'infinity' AND quarantined_at IS NULL
    AND dead_at < statement_timestamp() - $1::bigint * interval '1 ms'
  ORDER BY available_at, sequence LIMIT $2::int FOR UPDATE SKIP LOCKED)))sql";

// When the database's clock goes back, what was written before lies in the future: rows that no
// claim has taken yet, those whose last claim does too, and those that wait longer than anything
// has to ($1, in ms): their lease was renewed after the clock was right again.
constexpr char kPullBack[] = R"sql(
UPDATE {pending} SET available_at = statement_timestamp()
WHERE available_at > statement_timestamp() AND available_at < 'infinity'
  AND (locked_at IS NULL OR locked_at > statement_timestamp()
       OR available_at > statement_timestamp() + $1::bigint * interval '1 ms'))sql";

// Nobody comes back to these: what is left of them when all their rows were marked, but for the
// last word. $1 longer than any lease, in ms.
constexpr char kDeleteLeases[] = R"sql(
DELETE FROM {leases} WHERE token = ANY (ARRAY(
  SELECT l.token FROM {leases} l
  WHERE (l.locked_at < statement_timestamp() - $1::bigint * interval '1 ms'
         OR l.locked_at > statement_timestamp() + $1::bigint * interval '1 ms')
    AND NOT EXISTS (SELECT FROM unnest(l.sequences) s(sequence)
                    JOIN {outbox} e ON e.sequence = s.sequence
                    JOIN {pending} p ON p.aggregate_hash = lockstep.aggregate_hash(e.aggregate_id, e.aggregate_type, e.tenant_id)
                                    AND p.version = e.version AND p.sequence = s.sequence)
  FOR UPDATE SKIP LOCKED)))sql";

constexpr char kErase[] = R"sql(
WITH rows AS (
  SELECT sequence, version, lockstep.aggregate_hash(aggregate_id, aggregate_type, tenant_id) AS aggregate_hash FROM {outbox}
  WHERE aggregate_type = $1 AND aggregate_id = $2 AND coalesce(tenant_id, '') = $3
  FOR UPDATE),
queued AS (
  SELECT p.* FROM {pending} p JOIN rows r USING (aggregate_hash, version, sequence) FOR UPDATE OF p),
waiting AS (
  SELECT count(*) AS n FROM queued WHERE dead_at IS NULL AND quarantined_at IS NULL),
erased AS (
  UPDATE {outbox} t
  SET payload = '', attributes = '{}', content_type = 'application/x-lockstep-erased'
  FROM rows r, waiting
  WHERE t.sequence = r.sequence AND waiting.n = 0 AND t.content_type <> 'application/x-lockstep-erased'
  RETURNING t.sequence, t.event_id),
forgotten AS (
  UPDATE {pending} p SET last_error = NULL FROM queued q, waiting
  WHERE p.aggregate_hash = q.aggregate_hash AND p.version = q.version AND p.sequence = q.sequence AND waiting.n = 0),
audited AS (
  INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, note)
  SELECT $4, 'erase', lockstep.outbox_name($6::regclass), sequence, event_id, $5 FROM erased)
SELECT (SELECT n FROM waiting) AS waiting, (SELECT count(*) FROM erased) AS erased)sql";

// Places whose rows are gone, or were published too long ago to count. $1 the outbox, $2 rows.
constexpr char kDeleteContents[] = R"sql(
DELETE FROM lockstep.outbox_contents WHERE ctid = ANY (ARRAY(
  SELECT c.ctid FROM lockstep.outbox_contents c
  JOIN lockstep.outboxes o ON o.outbox = c.outbox
  LEFT JOIN {outbox} t ON t.sequence = c.sequence
  LEFT JOIN {published} b ON b.sequence = c.sequence
  WHERE c.outbox = $1::regclass
    AND (t.sequence IS NULL OR o.dedup_window IS NULL OR b.published_at < statement_timestamp() - o.dedup_window)
  LIMIT $2::int FOR UPDATE OF c SKIP LOCKED)))sql";

constexpr char kDeleteAudits[] =
    "SELECT lockstep.clean_audit($1::regclass, $2::bigint * interval '1 ms', $3::int)";

constexpr char kReleaseHeld[] = "SELECT lockstep.release_held($1::regclass, $2::boolean)";

const char* Sql(RowState state) {
  switch (state) {
    case RowState::kAny:
      return "true";
    case RowState::kUnpublished:
      return "sequence IN (SELECT sequence FROM {pending})";
    case RowState::kPublished:
      return "sequence IN (SELECT sequence FROM {published})";
    case RowState::kPending:
      return "sequence IN (SELECT sequence FROM {pending} WHERE dead_at IS NULL AND "
             "quarantined_at IS NULL)";
    case RowState::kDead:
      return "sequence IN (SELECT sequence FROM {pending} WHERE available_at = 'infinity' AND "
             "dead_at IS NOT NULL AND quarantined_at IS NULL)";
    case RowState::kQuarantined:
      return "sequence IN (SELECT sequence FROM {pending} WHERE available_at = 'infinity' AND "
             "quarantined_at IS NOT NULL)";
    case RowState::kMayBeQuarantined:
      return "sequence IN (SELECT sequence FROM {pending} WHERE quarantined_at IS NULL)";
  }
  return "false";
}

std::string About(const QualifiedName& table, std::string_view sql) {
  return FillParts(sql, table);
}

// The newest first.
absl::StatusOr<json> ReadNewestDead(postgres::Connection& connection, const QualifiedName& table) {
  ASSIGN_OR_RETURN(const Result rows, connection.Execute(About(table, kNewestDead)));
  json newest = json::array();
  for (const Row row : rows) {
    newest.push_back({{"sequence", row.Int("sequence")},
                      {"event_id", row.Text("event_id")},
                      {"event_type", row.Text("event_type")},
                      {"aggregate_type", row.Text("aggregate_type")},
                      {"aggregate_id", row.Text("aggregate_id")},
                      {"version", row.Int("version")},
                      {"topic", row.Text("topic")},
                      {"code", row.Text("error_code")},
                      {"reason", row.Text("last_error")},
                      {"attempts", row.Int("attempts")},
                      {"dead_at", FormatTimestamp(row.Time("dead_at"))},
                      {"held", row.Int("held")}});
  }
  return newest;
}

ordered_json ParseAll(const Result& rows, std::string_view column) {
  auto list = ordered_json::array();
  for (const Row row : rows) {
    // A database in another encoding than UTF-8 answers bytes that JSON can't hold.
    const std::string valid = ordered_json::parse(
        ordered_json(row.Text(column)).dump(-1, ' ', false, json::error_handler_t::replace));
    list.push_back(ordered_json::parse(valid));
  }
  return list;
}

}  // namespace

absl::StatusOr<OutboxRecord> ReadOutboxRecord(postgres::Connection& connection,
                                              const QualifiedName& table,
                                              std::optional<int64_t>& audit) {
  ASSIGN_OR_RETURN(const Result backlog, connection.Execute(About(table, kBacklog), kCountAtMost));
  ASSIGN_OR_RETURN(const Result dead, connection.Execute(About(table, kDeadCounts), kCountAtMost));
  OutboxRecord record;
  record.known = true;
  record.pending = backlog[0].Int("pending");
  record.locked = backlog[0].Int("locked");
  record.oldest = Millis(backlog[0].Int("oldest_ms"));
  record.dead = dead[0].Int("dead");
  record.quarantined = dead[0].Int("quarantined");
  json newest = json::array();
  if (record.dead > 0) {
    ASSIGN_OR_RETURN(newest, ReadNewestDead(connection, table));
  }
  ASSIGN_OR_RETURN(const Result replays, connection.Execute(kNewReplays, table.Quoted(), audit));
  audit = replays[0].Int("newest");
  record.replays = replays[0].Int("replays");
  record.part = {{"pending", record.pending},
                 {"locked", record.locked},
                 {"oldest_ms", record.oldest.count()},
                 {"pending_is_at_least", record.pending >= kCountAtMost},
                 {"dead", record.dead},
                 {"quarantined", record.quarantined},
                 {"dead_rows", std::move(newest)}};
  return record;
}

absl::StatusOr<int64_t> CountRetries(postgres::Connection& connection, const QualifiedName& table) {
  return connection.Number(About(table, kRetries));
}

absl::StatusOr<int64_t> CountUnpublished(postgres::Connection& connection,
                                         const QualifiedName& table) {
  return connection.Number(About(table, kUnpublished));
}

absl::StatusOr<int64_t> CountWaiting(postgres::Connection& connection, const QualifiedName& table,
                                     int64_t sequence) {
  return connection.Number(About(table, kWaiting), sequence);
}

absl::StatusOr<int64_t> NewestSequence(postgres::Connection& connection,
                                       const QualifiedName& table) {
  return connection.Number(About(table, kNewest));
}

absl::StatusOr<std::optional<PublishedEvent>> NewestPublished(postgres::Connection& connection,
                                                              const QualifiedName& table,
                                                              const std::string& aggregate_type,
                                                              int64_t sequence) {
  ASSIGN_OR_RETURN(const Result found,
                   connection.Execute(About(table, kNewestPublished), aggregate_type, sequence));
  if (found.empty()) return std::nullopt;
  const postgres::Row row = found[0];
  return PublishedEvent{
      .event_id = row.String("event_id"),
      .aggregate_key = envelope::AggregateKey(
          {row.OptionalText("tenant_id"), aggregate_type, row.String("aggregate_id")}),
      .version = row.Int("version"),
      .message_id = row.String("message_id")};
}

absl::StatusOr<ordered_json> FindRows(postgres::Connection& connection, const QualifiedName& table,
                                      RowState state, const RowFilter& filter, int64_t at_most) {
  ASSIGN_OR_RETURN(const Result right, connection.Execute(kMayReadPayload, table.Quoted()));
  const char* const bytes =
      right[0].Bool("may")
          ? "(SELECT octet_length(e.payload) FROM {outbox} e WHERE e.sequence = s.sequence)"
          : "NULL::int";
  ASSIGN_OR_RETURN(
      const Result rows,
      connection.Execute(
          About(table, FillNames(kFindRows, {{"state", Sql(state)}, {"payload_bytes", bytes}})),
          postgres::Array(filter.events), filter.key, filter.tenant, filter.topic, filter.type,
          filter.code, filter.older_than.count(), at_most, filter.aggregate_type, filter.version,
          filter.message_id));
  return ParseAll(rows, "row");
}

absl::StatusOr<ordered_json> ReadAudit(postgres::Connection& connection, const QualifiedName& table,
                                       int64_t sequence) {
  ASSIGN_OR_RETURN(const Result rows, connection.Execute(kAudit, table.Quoted(), sequence));
  return ParseAll(rows, "entry");
}

absl::StatusOr<int64_t> ChangeRows(postgres::Connection& connection, const QualifiedName& table,
                                   const std::string& action, const std::vector<int64_t>& sequences,
                                   const std::string& actor, const std::string& note) {
  return connection.Number(FillNames(kChange, {{"action", action}}), table.Quoted(),
                           postgres::Array(sequences), actor, note);
}

absl::StatusOr<int64_t> EraseRows(postgres::Connection& connection, const QualifiedName& table,
                                  const std::string& type, const std::string& id,
                                  const std::string& tenant, const std::string& actor,
                                  const std::string& note) {
  ASSIGN_OR_RETURN(const Result rows, connection.Execute(About(table, kErase), type, id, tenant,
                                                         actor, note, table.Quoted()));
  const int64_t waiting = rows[0].Int("waiting");
  if (waiting == 0) return rows[0].Int("erased");
  return FailedPrecondition(
      "{} rows of this aggregate wait to be published; let the publisher send them, or quarantine "
      "them, first",
      waiting);
}

absl::StatusOr<int64_t> DeleteAudits(postgres::Connection& connection, const QualifiedName& table,
                                     Millis older_than, int rows) {
  return connection.Number(kDeleteAudits, table.Quoted(), older_than.count(), rows);
}

absl::StatusOr<int64_t> DeleteContents(postgres::Connection& connection, const QualifiedName& table,
                                       int rows) {
  return connection.Affected(About(table, kDeleteContents), table.Quoted(), rows);
}

absl::StatusOr<int64_t> DeletePublished(postgres::Connection& connection,
                                        const QualifiedName& table, Millis older_than, int rows,
                                        int64_t below) {
  return connection.Affected(About(table, kDeletePublished), older_than.count(), rows, below);
}

absl::StatusOr<int64_t> DeleteDead(postgres::Connection& connection, const QualifiedName& table,
                                   Millis older_than, int rows) {
  return connection.Affected(About(table, kDeleteDead), older_than.count(), rows);
}

absl::StatusOr<int64_t> PullBack(postgres::Connection& connection, const QualifiedName& table,
                                 Millis longest_wait) {
  RETURN_IF_ERROR(connection.Run(About(table, kDeleteLeases), longest_wait.count()));
  return connection.Affected(About(table, kPullBack), longest_wait.count());
}

absl::StatusOr<int64_t> ReleaseHeld(postgres::Connection& connection, const QualifiedName& table,
                                    bool dead_blocks) {
  return connection.Number(kReleaseHeld, table.Quoted(), dead_blocks);
}

}  // namespace lockstep::publisher
