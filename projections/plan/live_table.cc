#include "projections/plan/live_table.h"

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::projections {
namespace {

constexpr std::string_view kColumns = R"(
SELECT a.attname AS name,
       format_type(a.atttypid, -1) AS type,
       format_type(a.atttypid, a.atttypmod) AS full_type,
       format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, -1) AS base_type,
       CASE WHEN t.typcategory = 'A' THEN format_type(t.typelem, -1) ELSE '' END AS element,
       t.typcategory AS category,
       a.attnotnull OR t.typnotnull AS not_null,
       a.attgenerated <> '' OR a.attidentity = 'a' AS generated,
       t.typarray <> 0 AND t.typcategory <> 'A' AS in_array,
       CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END AS default_sql
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum)";

constexpr std::string_view kUniqueKeys = R"(
SELECT (SELECT string_agg(a.attname, E'\x01' ORDER BY a.attname COLLATE "C")
        FROM pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])) AS columns
FROM pg_index i
WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL)";

}  // namespace

template <class Session>
absl::StatusOr<LiveTable> ReadLiveTable(Session& session, const postgres::QualifiedName& name) {
  LiveTable live;
  ASSIGN_OR_RETURN(const postgres::Result columns, session.Execute(kColumns, name.Quoted()));
  live.exists = !columns.empty();
  for (const postgres::Row row : columns) {
    live.columns[row.String("name")] = {.type = row.String("type"),
                                        .full_type = row.String("full_type"),
                                        .base_type = row.String("base_type"),
                                        .element = row.String("element"),
                                        .category = row.Text("category").front(),
                                        .not_null = row.Bool("not_null"),
                                        .generated = row.Bool("generated"),
                                        .in_array = row.Bool("in_array"),
                                        .default_sql = row.OptionalText("default_sql")};
  }
  ASSIGN_OR_RETURN(const postgres::Result keys, session.Execute(kUniqueKeys, name.Quoted()));
  for (const postgres::Row row : keys) {
    live.unique_keys.push_back(SplitList(row.Text("columns"), '\x01'));
  }
  return live;
}

template absl::StatusOr<LiveTable> ReadLiveTable(postgres::Connection& session,
                                                 const postgres::QualifiedName& name);
template absl::StatusOr<LiveTable> ReadLiveTable(postgres::Transaction& session,
                                                 const postgres::QualifiedName& name);

}  // namespace lockstep::projections
