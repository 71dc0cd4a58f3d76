#include "projections/plan/live_table.h"

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::projections {
namespace {

constexpr std::string_view kColumns = R"(
SELECT a.attname,
       format_type(a.atttypid, -1),
       format_type(a.atttypid, a.atttypmod),
       format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, -1),
       CASE WHEN t.typcategory = 'A' THEN format_type(t.typelem, -1) ELSE '' END,
       t.typcategory,
       a.attnotnull OR t.typnotnull,
       a.attgenerated <> '' OR a.attidentity = 'a',
       t.typarray <> 0 AND t.typcategory <> 'A',
       CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum)";

constexpr std::string_view kUniqueKeys = R"(
SELECT (SELECT string_agg(a.attname, E'\x01' ORDER BY a.attname COLLATE "C")
        FROM pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
FROM pg_index i
WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL)";

}  // namespace

absl::StatusOr<LiveTable> ReadLiveTable(const Execute& execute,
                                        const postgres::QualifiedName& name) {
  LiveTable live;
  ASSIGN_OR_RETURN(const postgres::Result rows, execute(kColumns, postgres::Params(name.Quoted())));
  live.exists = !rows.empty();
  for (int i = 0; i < rows.rows(); ++i) {
    LiveColumn& column = live.columns[std::string(rows.Text(i, 0))];
    column.type = rows.Text(i, 1);
    column.full_type = rows.Text(i, 2);
    column.base_type = rows.Text(i, 3);
    column.element = rows.Text(i, 4);
    column.category = rows.Text(i, 5).front();
    column.not_null = rows.Bool(i, 6);
    column.generated = rows.Bool(i, 7);
    column.in_array = rows.Bool(i, 8);
    column.default_sql = rows.Optional(i, 9);
  }
  ASSIGN_OR_RETURN(const postgres::Result keys,
                   execute(kUniqueKeys, postgres::Params(name.Quoted())));
  for (int i = 0; i < keys.rows(); ++i) {
    live.unique_keys.push_back(SplitList(keys.Text(i, 0), '\x01'));
  }
  return live;
}

}  // namespace lockstep::projections
