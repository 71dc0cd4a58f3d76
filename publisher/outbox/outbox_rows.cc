#include "publisher/outbox/outbox_rows.h"

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using postgres::FillNames;
using postgres::QualifiedName;
using postgres::Result;
using postgres::Row;

constexpr char kRetries[] = R"sql(
SELECT count(*) AS number FROM {outbox}
WHERE published_at IS NULL AND attempts > 0 AND dead_at IS NULL AND quarantined_at IS NULL)sql";

constexpr char kNewest[] = "SELECT coalesce(max(sequence), 0) AS number FROM {outbox}";

constexpr char kUnpublished[] =
    "SELECT count(*) AS number FROM {outbox} WHERE published_at IS NULL";

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

// $1 age in ms, $2 rows. SKIP LOCKED: a reader of a row must not stop the cleaner.
constexpr char kDeletePublished[] = R"sql(
DELETE FROM {outbox} WHERE sequence IN (
  SELECT sequence FROM {outbox}
  WHERE published_at < statement_timestamp() - $1::bigint * interval '1 ms'
  ORDER BY published_at, sequence LIMIT $2::int FOR UPDATE SKIP LOCKED))sql";

constexpr char kDeleteDead[] = R"sql(
DELETE FROM {outbox} WHERE sequence IN (
  SELECT sequence FROM {outbox}
  WHERE published_at IS NULL AND available_at = 'infinity' AND quarantined_at IS NULL
    AND dead_at < statement_timestamp() - $1::bigint * interval '1 ms'
  ORDER BY sequence LIMIT $2::int FOR UPDATE SKIP LOCKED))sql";

constexpr char kReleaseHeld[] = "SELECT lockstep.release_held($1::regclass, $2::boolean) AS rows";

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

absl::StatusOr<int64_t> AskNumber(postgres::Connection& connection, const char* sql,
                                  const QualifiedName& table) {
  ASSIGN_OR_RETURN(const Result result,
                   connection.Execute(FillNames(sql, {{"outbox", table.Quoted()}})));
  return result[0].Int("number");
}

absl::StatusOr<int64_t> Delete(postgres::Connection& connection, const char* sql,
                               const QualifiedName& table, Millis older_than, int rows) {
  ASSIGN_OR_RETURN(
      const Result result,
      connection.Execute(FillNames(sql, {{"outbox", table.Quoted()}}), older_than.count(), rows));
  return result.affected_rows();
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

absl::StatusOr<int64_t> CountRetries(postgres::Connection& connection, const QualifiedName& table) {
  return AskNumber(connection, kRetries, table);
}

absl::StatusOr<int64_t> CountUnpublished(postgres::Connection& connection,
                                         const QualifiedName& table) {
  return AskNumber(connection, kUnpublished, table);
}

absl::StatusOr<int64_t> NewestSequence(postgres::Connection& connection,
                                       const QualifiedName& table) {
  return AskNumber(connection, kNewest, table);
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
  ASSIGN_OR_RETURN(const Result result,
                   connection.Execute(FillNames(kChange, {{"action", action}}), table.Quoted(),
                                      postgres::Array(sequences), actor, note));
  return result[0].Int("changed");
}

absl::StatusOr<int64_t> DeletePublished(postgres::Connection& connection,
                                        const QualifiedName& table, Millis older_than, int rows) {
  return Delete(connection, kDeletePublished, table, older_than, rows);
}

absl::StatusOr<int64_t> DeleteDead(postgres::Connection& connection, const QualifiedName& table,
                                   Millis older_than, int rows) {
  return Delete(connection, kDeleteDead, table, older_than, rows);
}

absl::StatusOr<int64_t> ReleaseHeld(postgres::Connection& connection, const QualifiedName& table,
                                    bool dead_blocks) {
  ASSIGN_OR_RETURN(const Result result,
                   connection.Execute(kReleaseHeld, table.Quoted(), dead_blocks));
  return result[0].Int("rows");
}

}  // namespace lockstep::publisher
