#include "operations/table_compare.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::operations {
namespace {

constexpr std::string_view kColumns = R"(
SELECT a.attname,
       a.attidentity = '' AND coalesce(pg_get_expr(d.adbin, d.adrelid), '')
       !~* '(now\(|current_|localtime|clock_|statement_|transaction_|timeofday|random|nextval|uuid_gen)'
       AS compared
  FROM pg_attribute a
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated = ''
 WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum)";

// The columns of the key: the primary one, or any that is unique.
constexpr std::string_view kKey = R"(
SELECT a.attname
  FROM (SELECT indrelid, indkey, indnkeyatts FROM pg_index
         WHERE indrelid = $1::regclass AND indisunique AND indisvalid AND indpred IS NULL
           AND indexprs IS NULL
         ORDER BY indisprimary DESC, indexrelid LIMIT 1) i
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))";

// A sum does not mind the order of the rows.
constexpr std::string_view kSum = R"(
SELECT count(*) AS rows,
       coalesce(sum(hashtextextended(ROW({columns})::text, 0)::numeric), 0)::text AS checksum
  FROM {table})";

constexpr std::string_view kDifferences = R"(
WITH o AS (SELECT ROW({key})::text AS k, to_jsonb(t) - ARRAY[{left_out}]::text[] AS r FROM {old} t),
n AS (SELECT ROW({key})::text AS k, to_jsonb(t) - ARRAY[{left_out}]::text[] AS r FROM {new} t),
d AS (SELECT coalesce(o.k, n.k) AS k, o.r AS old, n.r AS new
        FROM o FULL JOIN n ON o.k = n.k WHERE o.r IS DISTINCT FROM n.r LIMIT $1)
SELECT key, what, rows
  FROM (
SELECT key, what, row_number() OVER (PARTITION BY what ORDER BY key) AS nth,
       count(*) OVER (PARTITION BY what) AS rows
  FROM (
SELECT k AS key,
       CASE WHEN new IS NULL THEN 'is missing in the new table'
            WHEN old IS NULL THEN 'is in the new table only'
            ELSE 'differs in ' || (SELECT string_agg(e.key, ', ' ORDER BY e.key)
                                     FROM jsonb_each(old) e
                                    WHERE e.value IS DISTINCT FROM new -> e.key) END AS what
  FROM d) AS each) AS kinds
 WHERE nth <= $2
 ORDER BY rows, what, key)";

}  // namespace

absl::StatusOr<TableComparison> CompareTables(postgres::Transaction& transaction,
                                              const std::string& old_table,
                                              const std::string& new_table,
                                              const std::set<std::string>& ignored) {
  ASSIGN_OR_RETURN(const auto old_name, postgres::QualifiedName::Parse(old_table));
  ASSIGN_OR_RETURN(const auto new_name, postgres::QualifiedName::Parse(new_table));
  const std::string before = old_name.Quoted(), after = new_name.Quoted();
  ASSIGN_OR_RETURN(const auto all, transaction.Execute(kColumns, before));
  ASSIGN_OR_RETURN(const auto key, transaction.Execute(kKey, before));
  std::vector<std::string> columns, left_out, keys;
  for (const postgres::Row row : all) {
    const std::string name = row.String("attname");
    const bool compared = row.Bool("compared") && !ignored.contains(name);
    compared ? columns.push_back(postgres::QuoteIdentifier(name))
             : left_out.push_back(postgres::QuoteLiteral(name));
  }
  for (const postgres::Row row : key) {
    keys.push_back(postgres::QuoteIdentifier(row.Text("attname")));
  }
  const auto sum = [&](const std::string& table) {
    return transaction.Execute(postgres::FillNames(
        kSum, {{"columns", fmt::format("{}", fmt::join(columns, ", "))}, {"table", table}}));
  };
  ASSIGN_OR_RETURN(const auto old_sum, sum(before));
  ASSIGN_OR_RETURN(const auto new_sum, sum(after));
  TableComparison result{
      .table = old_table,
      .old_rows = old_sum[0].Int("rows"),
      .new_rows = new_sum[0].Int("rows"),
      .same_checksum = old_sum[0].Text("checksum") == new_sum[0].Text("checksum"),
      .not_compared = ignored};
  if (result.equal() || keys.empty()) return result;
  ASSIGN_OR_RETURN(
      const auto rows,
      transaction.Execute(
          postgres::FillNames(kDifferences,
                              {{"key", fmt::format("{}", fmt::join(keys, ", "))},
                               {"left_out", fmt::format("{}", fmt::join(left_out, ", "))},
                               {"old", before},
                               {"new", after}}),
          TableComparison::kMax, TableComparison::kShown));
  int64_t total = 0;
  std::string kind;
  for (const postgres::Row row : rows) {
    result.differences.push_back({row.String("key"), row.String("what"), row.Int("rows")});
    if (std::exchange(kind, row.String("what")) != row.Text("what")) total += row.Int("rows");
  }
  result.more = total >= TableComparison::kMax;
  return result;
}

}  // namespace lockstep::operations
