#include "publisher/outbox/outbox_rows.h"

#include <algorithm>

#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using postgres::FillNames;
using postgres::QualifiedName;
using postgres::Result;
using postgres::Row;

constexpr char kBacklog[] = R"sql(
SELECT count(*) AS pending, count(lock_token) AS locked,
       greatest(0, extract(epoch FROM now() - min(created_at) FILTER (WHERE available_at < 'infinity')) * 1000)::bigint
         AS oldest_ms
FROM (SELECT lock_token, created_at, available_at FROM {outbox}
      WHERE published_at IS NULL AND dead_at IS NULL AND quarantined_at IS NULL
      LIMIT $1::bigint) pending)sql";

constexpr char kRetries[] = R"sql(
SELECT count(*) AS rows FROM {outbox}
WHERE published_at IS NULL AND attempts > 0 AND dead_at IS NULL AND quarantined_at IS NULL)sql";

constexpr char kUnpublished[] = "SELECT count(*) AS rows FROM {outbox} WHERE published_at IS NULL";

constexpr char kDeadCounts[] = R"sql(
SELECT count(*) FILTER (WHERE quarantined_at IS NULL) AS dead, count(quarantined_at) AS quarantined
FROM (SELECT quarantined_at FROM {outbox}
      WHERE published_at IS NULL AND available_at = 'infinity'
        AND (dead_at IS NOT NULL OR quarantined_at IS NOT NULL)
      LIMIT $1::bigint) dead)sql";

constexpr char kNewestDead[] = R"sql(
SELECT d.sequence, d.event_id, d.event_type, d.aggregate_type, d.aggregate_id, d.version, d.topic,
       d.error_code, d.last_error, d.attempts, d.dead_at,
       (SELECT count(*)
        FROM (SELECT 1 FROM {outbox} h
              WHERE h.published_at IS NULL AND h.aggregate_id = d.aggregate_id
                AND h.aggregate_type = d.aggregate_type AND h.tenant_id IS NOT DISTINCT FROM d.tenant_id
                AND h.version > d.version AND h.dead_at IS NULL AND h.quarantined_at IS NULL
              LIMIT 1000) behind) AS held
FROM {outbox} d
WHERE d.published_at IS NULL AND d.available_at = 'infinity' AND d.dead_at IS NOT NULL
  AND d.quarantined_at IS NULL
ORDER BY d.sequence DESC
LIMIT 50)sql";

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
         {payload_bytes} AS payload_bytes, content_type, schema_version, traceparent
  FROM {outbox}
  WHERE {state} AND ($1 = '' OR event_id = nullif($1, '')::uuid) AND ($2 = '' OR aggregate_id = $2)
    AND ($3 = '' OR tenant_id = $3) AND ($4 = '' OR topic = $4)
    AND ($5 = '' OR event_type = $5) AND ($6 = '' OR error_code = $6)
    AND ($7::bigint = 0 OR created_at < now() - $7::bigint * interval '1 ms')
  ORDER BY sequence
  LIMIT $8
) r)sql";

constexpr char kAudit[] = R"sql(
SELECT row_to_json(a)::text AS entry
FROM (
  SELECT at::text, actor, action, note FROM lockstep.outbox_audit
  WHERE outbox = lockstep.outbox_name($1::regclass) AND sequence = $2
  ORDER BY id
) a)sql";

constexpr char kChange[] =
    "SELECT lockstep.{action}($1::regclass, $2::bigint[], $3, nullif($4, '')) AS changed";

const char* Sql(RowState state) {
  switch (state) {
    case RowState::kAny:
      return "true";
    case RowState::kPending:
      return "published_at IS NULL AND dead_at IS NULL AND quarantined_at IS NULL";
    case RowState::kDead:
      return "dead_at IS NOT NULL AND published_at IS NULL AND quarantined_at IS NULL";
    case RowState::kQuarantined:
      return "quarantined_at IS NOT NULL";
    case RowState::kMayBeQuarantined:
      return "published_at IS NULL AND quarantined_at IS NULL";
  }
  return "false";
}

absl::StatusOr<int64_t> CountRows(postgres::Connection& connection, const char* sql,
                                  const QualifiedName& table) {
  ASSIGN_OR_RETURN(const Result result,
                   connection.Execute(FillNames(sql, {{"outbox", table.Quoted()}})));
  return result[0].Int("rows");
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

absl::StatusOr<Backlog> CountBacklog(postgres::Connection& connection, const QualifiedName& table) {
  ASSIGN_OR_RETURN(
      const Result result,
      connection.Execute(FillNames(kBacklog, {{"outbox", table.Quoted()}}), Backlog::kCountAtMost));
  const Row row = result[0];
  return Backlog{row.Int("pending"), row.Int("locked"), Millis(row.Int("oldest_ms"))};
}

absl::StatusOr<int64_t> CountRetries(postgres::Connection& connection, const QualifiedName& table) {
  return CountRows(connection, kRetries, table);
}

absl::StatusOr<int64_t> CountUnpublished(postgres::Connection& connection,
                                         const QualifiedName& table) {
  return CountRows(connection, kUnpublished, table);
}

absl::StatusOr<DeadRows> ReadDeadRows(postgres::Connection& connection,
                                      const QualifiedName& table) {
  const std::string quoted = table.Quoted();
  ASSIGN_OR_RETURN(
      const Result counts,
      connection.Execute(FillNames(kDeadCounts, {{"outbox", quoted}}), Backlog::kCountAtMost));
  DeadRows dead;
  dead.dead = counts[0].Int("dead");
  dead.quarantined = counts[0].Int("quarantined");
  if (dead.dead == 0) return dead;
  ASSIGN_OR_RETURN(const Result rows,
                   connection.Execute(FillNames(kNewestDead, {{"outbox", quoted}})));
  for (const Row row : rows) {
    dead.newest.push_back({{"sequence", row.Int("sequence")},
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
  return dead;
}

absl::StatusOr<ordered_json> FindRows(postgres::Connection& connection, const QualifiedName& table,
                                      RowState state, const RowFilter& filter, int64_t at_most) {
  ASSIGN_OR_RETURN(const Result right, connection.Execute(kMayReadPayload, table.Quoted()));
  const char* const bytes = right[0].Bool("may") ? "octet_length(payload)" : "NULL::int";
  ASSIGN_OR_RETURN(
      const Result rows,
      connection.Execute(
          FillNames(kFindRows,
                    {{"outbox", table.Quoted()}, {"state", Sql(state)}, {"payload_bytes", bytes}}),
          filter.event, filter.key, filter.tenant, filter.topic, filter.type, filter.code,
          filter.older_than.count(), at_most));
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
  postgres::Array array;
  for (const int64_t sequence : sequences) array.Add(sequence);
  ASSIGN_OR_RETURN(const Result result, connection.Execute(FillNames(kChange, {{"action", action}}),
                                                           table.Quoted(), array, actor, note));
  return result[0].Int("changed");
}

}  // namespace lockstep::publisher
