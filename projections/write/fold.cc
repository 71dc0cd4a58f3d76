#include "projections/write/fold.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace lockstep::projections {
namespace {

void AppendKey(const Table& table, const Step& step, bool uuid_key, std::string* key) {
  for (size_t i = 0; i < table.key.size(); ++i) {
    // A NUL is in no text, so it keeps the parts apart.
    if (i > 0) *key += '\0';
    *key += step.At(i).text;
  }
  if (!uuid_key) return;
  for (char& c : *key) {
    if (c >= 'A' && c <= 'F') c += 'a' - 'A';
  }
}

}  // namespace

std::vector<RowSteps> GroupByRow(const Table& table, const std::vector<Step>& steps,
                                 bool uuid_key) {
  std::vector<RowSteps> rows;
  rows.reserve(steps.size());
  absl::flat_hash_map<std::string, size_t> index;
  index.reserve(steps.size());
  std::string key;
  for (const Step& step : steps) {
    key.clear();
    AppendKey(table, step, uuid_key, &key);
    const auto [found, added] = index.try_emplace(key, rows.size());
    if (added) rows.push_back({key, {}});
    rows[found->second].steps.push_back(step);
  }
  for (RowSteps& row : rows) {
    std::ranges::stable_sort(row.steps, {}, [](const Step& step) { return step.change->version; });
  }
  std::ranges::sort(rows, {}, &RowSteps::key);
  return rows;
}

FoldedRow Fold(const Table& table, std::span<const Step> steps) {
  FoldedRow row;
  const size_t keys = table.key.size();
  const size_t values = table.values.size();
  row.key_change = steps.front().change;
  row.key = std::span(row.key_change->cells).subspan(steps.front().row->first_cell, keys);
  row.first_version = steps.front().change->version;
  row.version = steps.back().change->version;
  row.values.resize(values);
  row.keep = true;
  for (const Step& step : steps) {
    const Operation operation = step.row->operation;
    if (operation == Operation::kDelete) {
      row.deleted = true;
      if (!table.deleted_at.empty()) {
        row.deleted_at = step.At(keys + values);
        if (row.deleted_at.state == CellState::kAbsent) row.deleted_at = {CellState::kText, "now"};
      }
    } else {
      // After a delete a merge starts from nothing, as a snapshot does always.
      if (operation == Operation::kReplace || row.deleted) {
        row.fresh = true;
        std::fill(row.values.begin(), row.values.end(), Value());
      }
      row.deleted = false;
      row.deleted_at = {CellState::kNull, {}};
      row.keep = false;
    }
    for (size_t i = 0; i < values; ++i) {
      const Value value = step.At(keys + i);
      if (value.state != CellState::kAbsent) row.values[i] = value;
    }
  }
  return row;
}

bool FoldedRow::Whole(const std::vector<bool>& has_default) const {
  if (!fresh || first_version != version) return false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].state == CellState::kAbsent && has_default[i]) return false;
  }
  return true;
}

}  // namespace lockstep::projections
