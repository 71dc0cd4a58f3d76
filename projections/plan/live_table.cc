#include "projections/plan/live_table.h"

#include <algorithm>
#include <string_view>

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

struct TypesOfKind {
  ValueKind kind;
  std::string_view inferred;
  std::vector<std::string_view> fitting;  // besides text
};

// Values of any other kind are text.
const std::vector<TypesOfKind> kTypes = {
    {ValueKind::kBool, "boolean", {"boolean"}},
    {ValueKind::kInt32, "integer", {"integer", "bigint", "numeric", "double precision"}},
    {ValueKind::kInt64, "bigint", {"bigint", "numeric"}},
    {ValueKind::kUInt64, "numeric(20,0)", {"numeric"}},
    {ValueKind::kFloat, "real", {"real", "double precision", "numeric"}},
    {ValueKind::kDouble, "double precision", {"double precision", "numeric"}},
    {ValueKind::kNumeric, "numeric", {"double precision", "numeric"}},
    {ValueKind::kBytes, "bytea", {"bytea"}},
    {ValueKind::kTimestamp,
     "timestamptz",
     {"timestamp with time zone", "timestamp without time zone", "date"}},
    {ValueKind::kInterval, "interval", {"interval"}},
    {ValueKind::kJson, "jsonb", {"jsonb", "json"}},
};

const TypesOfKind* Find(ValueKind kind) {
  const auto found = std::ranges::find(kTypes, kind, &TypesOfKind::kind);
  return found == kTypes.end() ? nullptr : &*found;
}

bool OneOf(std::string_view type, const std::vector<std::string_view>& types) {
  return std::ranges::find(types, type) != types.end();
}

bool IsText(std::string_view type) {
  return OneOf(type, {"text", "character varying", "bpchar", "character", "name", "citext"}) ||
         type.ends_with(".citext");
}

// The types of Postgres itself that are no text and that free text does not fit into.
bool IsStrict(std::string_view type) {
  return type == "smallint" || std::ranges::any_of(kTypes, [&](const TypesOfKind& types) {
           return OneOf(type, types.fitting);
         });
}

bool FitsScalar(ValueKind kind, std::string_view type) {
  if (IsText(type)) return kind != ValueKind::kBytes;
  if (const TypesOfKind* types = Find(kind)) return OneOf(type, types->fitting);
  // Into uuid, enums, inet, … free text goes as well: their own input decides.
  return kind != ValueKind::kText || !IsStrict(type);
}

}  // namespace

absl::StatusOr<LiveTable> ReadLiveTable(postgres::Executor& on,
                                        const postgres::QualifiedName& name) {
  LiveTable live;
  ASSIGN_OR_RETURN(const postgres::Result columns, on.Execute(kColumns, name.Quoted()));
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
  ASSIGN_OR_RETURN(const postgres::Result keys, on.Execute(kUniqueKeys, name.Quoted()));
  for (const postgres::Row row : keys) {
    live.unique_keys.push_back(SplitList(row.Text("columns"), '\x01'));
  }
  return live;
}

std::string InferredType(const ValueType& type) {
  const TypesOfKind* types = Find(type.kind);
  return std::string(types == nullptr ? "text" : types->inferred) + (type.array ? "[]" : "");
}

bool Fits(const ValueType& type, const LiveColumn& column) {
  if (type.array) return !column.element.empty() && FitsScalar(type.kind, column.element);
  if (!column.element.empty()) return type.kind == ValueKind::kConstant;
  return FitsScalar(type.kind, column.base_type);
}

}  // namespace lockstep::projections
