#include "publisher/backfill/source_check.h"

#include <algorithm>

#include "envelope/event.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "publisher/backfill/source_query.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {
namespace {

using postgres::FillNames;
using postgres::QuoteIdentifier;
using postgres::Result;
using postgres::Row;

// $1 the table, $2 columns: an index that proves them unique, NULLs too, and one in their order.
constexpr char kIndexes[] = R"sql(
SELECT coalesce(bool_or(indisunique AND columns <@ $2::text[]), false) AS unique,
       coalesce(bool_or(indisunique AND columns <@ $2::text[] AND no_nulls), false) AS unique_with_nulls,
       coalesce(bool_or(columns[1:cardinality($2::text[])] = $2::text[]), false) AS ordered
FROM (
  SELECT i.indisunique, ARRAY(
    SELECT a.attname::text FROM unnest(i.indkey::int[]) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE place <= i.indnkeyatts ORDER BY place) AS columns,
    (SELECT bool_and(a.attnotnull) FROM pg_attribute a
     WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int[])) AS no_nulls
  FROM pg_index i
  WHERE i.indrelid = to_regclass($1) AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL) found)sql";

// $1 the table: a column that marks rows as deleted.
constexpr char kMarks[] = R"sql(
SELECT attname::text AS name FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
  AND attname IN ('deleted', 'deleted_at', 'deleted_on', 'is_deleted', 'deletion_time', 'removed_at')
ORDER BY attnum LIMIT 1)sql";

// $1 is there so that Postgres takes no second statement.
constexpr char kScan[] = R"sql(
SELECT $1::int + count(*) AS rows, count(*) FILTER (WHERE {null_keys}) AS null_keys,
       count(*) FILTER (WHERE coalesce({id}::text, '') = '') AS no_ids,
       count(*) FILTER (WHERE coalesce({version}, 0) < 1) AS no_versions
FROM {source} q)sql";

constexpr char kRepeated[] = R"sql(
SELECT {texts} AS key FROM {source} q GROUP BY {keys} HAVING count(*) > 1 LIMIT $1::int)sql";

constexpr char kTwins[] = R"sql(
SELECT {id}::text AS id, {tenant} AS tenant FROM {source} q GROUP BY 1, 2 HAVING count(*) > 1 LIMIT $1::int)sql";

// $1 the aggregate type, $2 examples. One statement sees the row and its event together, or
// neither.
constexpr char kBehind[] = R"sql(
WITH newest AS (
  SELECT tenant_id, aggregate_id, max(version) AS version FROM {outbox}
  WHERE aggregate_type = $1 GROUP BY tenant_id, aggregate_id)
SELECT n.aggregate_id, q.{version}::bigint AS version, n.version AS newest, count(*) OVER () AS total
FROM {source} q JOIN newest n ON n.aggregate_id = q.{id}::text AND n.tenant_id IS NOT DISTINCT FROM {tenant}
WHERE q.{version} < n.version
ORDER BY n.aggregate_id LIMIT $2::int)sql";

constexpr int kExamples = 5;

// Each in a transaction that can't write, as the worker reads it.
absl::StatusOr<Result> Look(postgres::Connection& connection, const std::string& sql,
                            const postgres::Params& params) {
  ASSIGN_OR_RETURN(auto transaction, connection.Begin());
  RETURN_IF_ERROR(transaction.Run("SET TRANSACTION READ ONLY"));
  // All is read, and an outbox that grows faster than it is analysed looks small to the planner: a
  // loop over its rows, each with a scan of the source, would take hours.
  RETURN_IF_ERROR(transaction.Run("SET LOCAL enable_nestloop = off"));
  return transaction.Execute(sql, params);
}

std::string ColumnOf(const std::string& name) { return "q." + QuoteIdentifier(name); }

std::string TenantOf(const Declaration& declaration) {
  return declaration.tenant.empty() ? "NULL" : ColumnOf(declaration.tenant) + "::text";
}

std::string Each(const std::vector<std::string>& columns, std::string_view between,
                 std::string_view after) {
  std::string all;
  for (const std::string& column : columns) {
    if (!all.empty()) all += between;
    all += ColumnOf(column);
    all += after;
  }
  return all;
}

// What every row has to have; and how many there are.
absl::Status ScanRows(postgres::Connection& connection, const Declaration& declaration,
                      SourceReport& report) {
  ASSIGN_OR_RETURN(const Result scanned,
                   Look(connection,
                        FillNames(kScan, {{"null_keys", Each(declaration.key, " OR ", " IS NULL")},
                                          {"id", ColumnOf(declaration.aggregate_id)},
                                          {"version", ColumnOf(declaration.version)},
                                          {"source", declaration.SourceSql()}}),
                        postgres::Params(0)));
  const Row row = scanned[0];
  report.rows = row.Int("rows");
  report.counted = true;
  const auto note = [&](std::string_view count, std::string_view what) {
    if (row.Int(count) == 0) return;
    report.problems.push_back(
        fmt::format("{} rows of {} have {}", row.Int(count), declaration.SourceName(), what));
  };
  note("null_keys",
       fmt::format("NULL in the key ({}): no order holds them", fmt::join(declaration.key, ", ")));
  note("no_ids", fmt::format("no {}, which is their aggregate's id", declaration.aggregate_id));
  note("no_versions",
       fmt::format("NULL, 0 or less in {}: versions start at 1", declaration.version));
  return absl::OkStatus();
}

absl::Status ScanKeys(postgres::Connection& connection, const Declaration& declaration,
                      SourceReport& report) {
  ASSIGN_OR_RETURN(
      const Result repeated,
      Look(connection,
           FillNames(kRepeated, {{"texts", Each(declaration.key, " || ', ' || ", "::text")},
                                 {"source", declaration.SourceSql()},
                                 {"keys", Each(declaration.key, ", ", "")}}),
           postgres::Params(kExamples)));
  if (repeated.empty()) return absl::OkStatus();
  std::vector<std::string> keys;
  for (const Row row : repeated) keys.push_back("(" + row.String("key") + ")");
  report.problems.push_back(fmt::format("the key ({}) of {} is not unique: {}",
                                        fmt::join(declaration.key, ", "), declaration.SourceName(),
                                        fmt::join(keys, ", ")));
  return absl::OkStatus();
}

absl::Status ScanVersions(postgres::Connection& connection, const Declaration& declaration,
                          SourceReport& report) {
  ASSIGN_OR_RETURN(const Result behind,
                   Look(connection,
                        FillNames(kBehind, {{"outbox", declaration.outbox.Quoted()},
                                            {"source", declaration.SourceSql()},
                                            {"id", QuoteIdentifier(declaration.aggregate_id)},
                                            {"version", QuoteIdentifier(declaration.version)},
                                            {"tenant", TenantOf(declaration)}}),
                        postgres::Params(declaration.aggregate_type, kExamples)));
  if (behind.empty()) return absl::OkStatus();
  std::vector<std::string> examples;
  for (const Row row : behind) {
    examples.push_back(fmt::format("{} has {} and an event of {}", row.Text("aggregate_id"),
                                   row.Int("version"), row.Int("newest")));
  }
  report.problems.push_back(fmt::format(
      "{} rows of {} have a version behind that of an event in {} ({}): the transaction that "
      "enqueues an event must raise the row's version",
      behind[0].Int("total"), declaration.SourceName(), declaration.outbox.ToString(),
      fmt::join(examples, "; ")));
  return absl::OkStatus();
}

bool IsSent(const Declaration& declaration, const std::string& column) {
  return std::ranges::any_of(declaration.fields,
                             [&](const auto& field) { return field.second == column; });
}

// Whether no two rows can be of one aggregate, if the key is unique.
absl::StatusOr<bool> AggregatesAreUnique(postgres::Connection& connection,
                                         const Declaration& declaration) {
  std::vector<std::string> columns = {declaration.aggregate_id};
  if (!declaration.tenant.empty()) columns.push_back(declaration.tenant);
  if (std::ranges::all_of(declaration.key, [&](const std::string& column) {
        return std::ranges::find(columns, column) != columns.end();
      })) {
    return true;
  }
  if (declaration.table.empty()) return false;
  ASSIGN_OR_RETURN(const Result indexes,
                   connection.Execute(kIndexes, declaration.SourceSql(), columns));
  return indexes[0].Bool("unique_with_nulls");
}

}  // namespace

absl::StatusOr<std::string> FindTwins(postgres::Connection& connection,
                                      const Declaration& declaration) {
  ASSIGN_OR_RETURN(const bool unique, AggregatesAreUnique(connection, declaration));
  if (unique) return "";
  ASSIGN_OR_RETURN(const Result twins,
                   Look(connection,
                        FillNames(kTwins, {{"id", ColumnOf(declaration.aggregate_id)},
                                           {"tenant", TenantOf(declaration)},
                                           {"source", declaration.SourceSql()}}),
                        postgres::Params(1)));
  if (twins.empty()) return "";
  return fmt::format(
      "two rows of {} are of the aggregate {}: a snapshot says how a whole aggregate stands, so "
      "each must be one row (a `query` can join them), or `aggregate_id` is another column",
      declaration.SourceName(),
      envelope::AggregateKey(
          {twins[0].OptionalText("tenant"), declaration.aggregate_type, twins[0].String("id")}));
}

nlohmann::ordered_json SourceReport::ToJson() const {
  return {{"ok", problems.empty()},
          {"rows", rows},
          {"counted", counted},
          {"problems", problems},
          {"warnings", warnings}};
}

absl::StatusOr<SourceReport> CheckSource(postgres::Connection& connection,
                                         const Declaration& declaration, bool scan) {
  SourceReport report;
  RETURN_IF_ERROR(FindOutbox(connection, declaration.outbox).status());
  const auto query = SourceQuery::Make(connection, declaration);
  if (absl::IsInvalidArgument(query.status()) || absl::IsPermissionDenied(query.status())) {
    report.problems.emplace_back(MessageOf(query.status()));
    return report;
  }
  if (!query.ok()) return query.status();
  ASSIGN_OR_RETURN(report.rows, query->Estimate(connection));
  bool unique = false;
  if (!declaration.table.empty()) {
    ASSIGN_OR_RETURN(const Result indexes,
                     connection.Execute(kIndexes, declaration.SourceSql(), declaration.key));
    unique = indexes[0].Bool("unique");
    if (!indexes[0].Bool("ordered")) {
      report.warnings.push_back(fmt::format(
          "no index of {} begins with ({}) in this order: every page may sort the whole table",
          declaration.table, fmt::join(declaration.key, ", ")));
    }
    ASSIGN_OR_RETURN(const Result marks, connection.Execute(kMarks, declaration.SourceSql()));
    if (!marks.empty() && !IsSent(declaration, marks[0].String("name"))) {
      report.warnings.push_back(fmt::format(
          "{0} has a column {1}, which is not sent: if it marks rows as deleted, they would be "
          "sent "
          "as rows that are there. Leave them out with `query: SELECT … FROM {0} WHERE {1} …`, or "
          "send the mark and let the consumer's mapping delete by it (`when`)",
          declaration.table, marks[0].Text("name")));
    }
  }
  if (!scan) {
    if (!unique) {
      report.warnings.push_back(fmt::format(
          "no unique index proves the key ({}): a repeated one stops the backfill when it is met",
          fmt::join(declaration.key, ", ")));
    }
    return report;
  }
  const auto all = [&]() -> absl::Status {
    RETURN_IF_ERROR(ScanRows(connection, declaration, report));
    if (!unique) RETURN_IF_ERROR(ScanKeys(connection, declaration, report));
    ASSIGN_OR_RETURN(std::string twins, FindTwins(connection, declaration));
    if (!twins.empty()) report.problems.push_back(std::move(twins));
    return ScanVersions(connection, declaration, report);
  };
  RETURN_IF_ERROR(query->Explain(all()));
  return report;
}

}  // namespace lockstep::publisher
