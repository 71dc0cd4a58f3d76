#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/connection.h"
#include "projections/model/table.h"
#include "projections/plan/live_table.h"

namespace lockstep::projections {

// A prepared statement of a plan.
struct PlannedStatement {
  std::string name;
  std::string sql;
  postgres::Statement Get() const { return {name, sql}; }
};

// The statements that write one table, made from its declaration and the live columns' types.
// Parameters are arrays, one per column, an element per row.
struct TablePlan {
  // Whether an absent value of a fresh row takes the column's default rather than NULL.
  std::vector<bool> has_default;
  bool uuid_key = false;  // the key is one uuid, whose text may come in upper case

  // Rows that come whole, one event each: keys, version, values, [deleted_at], [aggregate].
  PlannedStatement write_whole[2];  // [1] also takes the stored version itself (overwrite)
  // Any rows: keys, version, values, [deleted_at], [aggregate], first version, mask. Answers the
  // keys written.
  PlannedStatement write_any[2];
  // What is stored under the keys, locked: position, key, version, aggregate.
  PlannedStatement stored;
  // Tables with hard deletes. Guard: group, generation, keys, version, first, deleted,
  // [aggregate]. Answers keys.
  PlannedStatement claim[2];
  PlannedStatement claimed;  // group, generation, keys: position, key, version, aggregate
  PlannedStatement forget;  // group, generation, keys, version, [aggregate]: of rows, no tombstones
  // Takes rows away up to a version: keys, version, [aggregate]. Answers positions. Where the table
  // has deleted_at, only repairs do it: marks them, and leaves no version behind.
  PlannedStatement remove;
  // Counting tables: keys, deltas.
  PlannedStatement count;
};

// The mask of a row of `write_any`: these two, then one character per value column.
inline constexpr size_t kMaskFresh = 0;  // '1' = the row starts from nothing
inline constexpr size_t kMaskKeep = 1;   // '1' = a lone delete: a deleted row's values stay as well
inline constexpr size_t kMaskValues = 2;

absl::StatusOr<std::shared_ptr<const TablePlan>> MakePlan(const Table& table, const LiveTable& live,
                                                          const std::string& state_schema);

}  // namespace lockstep::projections
