#include "operations/table_compare.h"

#include <fmt/format.h>

#include <string_view>

#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::operations {
namespace {

constexpr std::string_view kColumns = R"(
SELECT a.attname,
       a.attidentity = '' AND coalesce(pg_get_expr(d.adbin, d.adrelid), '')
       !~* '(now\(|current_|localtime|clock_|statement_|transaction_|timeofday|random|nextval|uuid_gen)'
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
constexpr char kSum[] = R"(
SELECT count(*), coalesce(sum(hashtextextended(ROW({0})::text, 0)::numeric), 0)::text FROM {1})";

constexpr char kDifferences[] = R"(
WITH o AS (SELECT ROW({0})::text AS k, to_jsonb(t) - ARRAY[{1}]::text[] AS r FROM {2} t),
n AS (SELECT ROW({0})::text AS k, to_jsonb(t) - ARRAY[{1}]::text[] AS r FROM {3} t),
d AS (SELECT coalesce(o.k, n.k) AS k, o.r AS old, n.r AS new
        FROM o FULL JOIN n ON o.k = n.k WHERE o.r IS DISTINCT FROM n.r LIMIT {4})
SELECT k, CASE WHEN new IS NULL THEN 'is missing in the new table'
               WHEN old IS NULL THEN 'is in the new table only'
               ELSE 'differs in ' || (SELECT string_agg(e.key, ', ' ORDER BY e.key)
                                        FROM jsonb_each(old) e
                                       WHERE e.value IS DISTINCT FROM new -> e.key) END
  FROM d ORDER BY k)";

std::string Literal(std::string_view text) {
  std::string literal = "'";
  for (const char c : text) literal += c == '\'' ? std::string("''") : std::string(1, c);
  return literal + "'";
}

struct Sum {
  int64_t rows = 0;
  std::string checksum;
};

absl::StatusOr<Sum> SumOf(postgres::Transaction& transaction, const std::string& columns,
                          const std::string& table) {
  ASSIGN_OR_RETURN(const auto row, transaction.Execute(fmt::format(kSum, columns, table)));
  return Sum{row.Int(0, 0), std::string(row.Text(0, 1))};
}

}  // namespace

absl::StatusOr<TableComparison> CompareTables(postgres::Transaction& transaction,
                                              const std::string& old_table,
                                              const std::string& new_table,
                                              const std::set<std::string>& ignored) {
  ASSIGN_OR_RETURN(const auto old_name, postgres::QualifiedName::Parse(old_table));
  ASSIGN_OR_RETURN(const auto new_name, postgres::QualifiedName::Parse(new_table));
  const postgres::Params of_old = postgres::Params(old_name.Quoted());
  ASSIGN_OR_RETURN(const auto all, transaction.Execute(kColumns, of_old));
  ASSIGN_OR_RETURN(const auto key, transaction.Execute(kKey, of_old));
  std::vector<std::string> columns, left_out, keys;
  for (int i = 0; i < all.rows(); ++i) {
    const std::string name(all.Text(i, 0));
    const bool compared = all.Bool(i, 1) && !ignored.contains(name);
    compared ? columns.push_back(postgres::QuoteIdentifier(name))
             : left_out.push_back(Literal(name));
  }
  for (int i = 0; i < key.rows(); ++i) {
    keys.push_back(postgres::QuoteIdentifier(std::string(key.Text(i, 0))));
  }
  const std::string list = fmt::format("{}", fmt::join(columns, ", "));
  ASSIGN_OR_RETURN(const Sum before, SumOf(transaction, list, old_name.Quoted()));
  ASSIGN_OR_RETURN(const Sum after, SumOf(transaction, list, new_name.Quoted()));
  TableComparison result{.table = old_table,
                         .old_rows = before.rows,
                         .new_rows = after.rows,
                         .same_checksum = before.checksum == after.checksum};
  if (result.equal() || keys.empty()) return result;
  ASSIGN_OR_RETURN(const auto rows,
                   transaction.Execute(fmt::format(kDifferences, fmt::join(keys, ", "),
                                                   fmt::join(left_out, ", "), old_name.Quoted(),
                                                   new_name.Quoted(), TableComparison::kMax + 1)));
  result.more = rows.rows() > TableComparison::kMax;
  for (int i = 0; i < rows.rows() && i < TableComparison::kMax; ++i) {
    result.differences.push_back({std::string(rows.Text(i, 0)), std::string(rows.Text(i, 1))});
  }
  return result;
}

}  // namespace lockstep::operations
