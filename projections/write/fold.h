#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "projections/model/cells.h"
#include "projections/model/table.h"

namespace lockstep::projections {

struct Value {
  CellState state = CellState::kAbsent;
  std::string_view text;
};

// One event's part in one row.
struct Step {
  const MappedChange* change = nullptr;
  const RowChange* row = nullptr;
  uint32_t event = 0;  // index in the batch

  Value At(size_t cell) const {
    const Cell& found = change->cells[row->first_cell + cell];
    return {found.state, change->Text(found)};
  }
};

// The steps of one row, in version order.
struct RowSteps {
  std::string key;  // for grouping and for the order of locks
  std::vector<Step> steps;
};

// What the steps of a row come to: one write with the same result as one by one.
struct FoldedRow {
  std::span<const Cell> key;
  const MappedChange* key_change = nullptr;
  int64_t first_version = 0;
  int64_t version = 0;
  bool fresh = false;    // starts from nothing: what is stored does not matter
  bool deleted = false;  // its last word is a delete
  bool keep = false;     // nothing but deletes: a deleted row's values stay as well
  std::vector<Value> values;
  Value deleted_at;

  // Whether the row can be written without knowing what is stored.
  bool Whole(const std::vector<bool>& has_default) const;
};

// The rows come in key order. `uuid_key`: the key's text may differ in case.
std::vector<RowSteps> GroupByRow(const Table& table, const std::vector<Step>& steps, bool uuid_key);

// REQUIRES: not empty, versions strictly rising.
FoldedRow Fold(const Table& table, std::span<const Step> steps);

}  // namespace lockstep::projections
