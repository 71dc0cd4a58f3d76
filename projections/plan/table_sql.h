#pragma once

#include <string_view>

// The statements that write one table, for its plan (TablePlan says what each is for); what stands
// in braces is filled in by table_plan.cc.
namespace lockstep::projections::table_sql {

inline constexpr std::string_view kWriteWhole = R"(INSERT INTO {table} AS t ({columns})
SELECT {values}
FROM {rows}
ON CONFLICT ({key_columns}) DO UPDATE SET {sets}
WHERE t.{version} {guard} excluded.{version}{owner_guard}
RETURNING {key})";

// In DO UPDATE only the table's columns can be seen; what else is known of the row is looked up by
// its key. (A join would decide by the snapshot; this decides by the row that is locked.) A whole
// row has no mask: nothing is looked up for it. The NULL in its place keeps the join from going
// through the index.
inline constexpr std::string_view kWriteAny = R"(WITH flags AS MATERIALIZED (
  SELECT jsonb_object_agg({input_key}, u.first || ':' || u.mask) AS by_key FROM {rows}
   WHERE u.mask IS NOT NULL)
INSERT INTO {table} AS t ({columns})
SELECT {values}
FROM {numbered_rows}
LEFT JOIN {table} AS s ON {masked_join}
ORDER BY u.n
ON CONFLICT ({key_columns}) DO UPDATE SET {sets}
WHERE t.{version} {guard}
      coalesce(split_part({flags}, ':', 1)::bigint, excluded.{version}){owner_guard}
RETURNING {key})";

inline constexpr std::string_view kStored = R"(SELECT u.n, {key}, t.{version}, {aggregate}
FROM {numbered_rows}
JOIN {table} AS t ON {join}
ORDER BY u.n
FOR UPDATE OF t)";

inline constexpr std::string_view kClaim = R"(INSERT INTO {row_versions} AS r
  (consumer_group, generation, projection, row_key, version, first_version, deleted_at, aggregate)
SELECT $1, $2::bigint, {projection}, {input_key}, u.version, u.first,
       CASE WHEN u.gone THEN now() END, {owner}
FROM {rows}
ON CONFLICT (consumer_group, generation, projection, row_key) DO UPDATE
SET version = excluded.version, first_version = excluded.first_version,
    deleted_at = excluded.deleted_at, aggregate = excluded.aggregate
WHERE r.version {guard} excluded.first_version{claim_owner_guard}
RETURNING r.row_key)";

// Row by row: planned while the table was small, a join would go through all rows of the group.
inline constexpr std::string_view kClaimed = R"(SELECT u.n, r.row_key, r.version, r.aggregate
FROM {numbered_rows}
CROSS JOIN LATERAL (
  SELECT c.row_key, c.version, c.aggregate FROM {row_versions} AS c
   WHERE c.consumer_group = $1 AND c.generation = $2::bigint
     AND c.projection = {projection} AND c.row_key = {input_key}
   LIMIT 1 FOR UPDATE) AS r
ORDER BY u.n)";

inline constexpr std::string_view kDelete = R"(DELETE FROM {table} AS t USING {numbered_rows}
WHERE {join} AND t.{version} <= u.version{input_owner_guard}
RETURNING u.n)";

inline constexpr std::string_view kBury = R"(UPDATE {table} AS t SET {sets}
FROM {numbered_rows}
WHERE {join} AND t.{version} <= u.version AND t.{deleted_at} IS NULL{input_owner_guard}
RETURNING u.n)";

// Leaves the tombstones: those are an event's word.
inline constexpr std::string_view kForget = R"(DELETE FROM {row_versions} AS r USING {rows}
WHERE r.consumer_group = $1 AND r.generation = $2::bigint AND r.projection = {projection}
  AND r.row_key = {input_key} AND r.version <= u.version
  AND r.deleted_at IS NULL{forget_owner_guard})";

// Postgres sums: exact for numbers of any size, and equal keys are its own to judge.
inline constexpr std::string_view kCount = R"(INSERT INTO {table} AS t ({columns})
SELECT {values}
FROM {rows}
GROUP BY {key_inputs}
ORDER BY {key_inputs}
ON CONFLICT ({key_columns}) DO UPDATE SET {sets})";

}  // namespace lockstep::projections::table_sql
