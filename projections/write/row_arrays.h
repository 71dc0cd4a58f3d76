#pragma once

#include <vector>

#include "postgres/params.h"
#include "projections/write/fold.h"

namespace lockstep::projections {

// The parameters of a set-based statement: one array per column, one element per row.
class RowArrays {
 public:
  explicit RowArrays(size_t columns) : arrays_(columns) {}

  postgres::Array& operator[](size_t column) { return arrays_[column]; }

  static void Add(const Value& value, postgres::Array* array) {
    if (value.state == CellState::kText) {
      array->Add(value.text);
    } else {
      array->AddNull();
    }
  }

  void AddKey(const FoldedRow& row) {
    for (size_t i = 0; i < row.key.size(); ++i) arrays_[i].Add(row.key_change->Text(row.key[i]));
  }

  void AppendTo(postgres::Params* params) const {
    for (const postgres::Array& array : arrays_) params->Add(array);
  }

 private:
  std::vector<postgres::Array> arrays_;
};

}  // namespace lockstep::projections
