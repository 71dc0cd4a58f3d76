#pragma once

#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "postgres/params.h"
#include "projections/model/projector.h"
#include "projections/plan/table_plan.h"
#include "projections/write/fold.h"

namespace lockstep::projections {

// What a write needs besides the rows.
struct WriteContext {
  postgres::Transaction& transaction;
  const Table& table;
  const TablePlan& plan;
  const std::string& group;
  const ApplyOptions& options;
};

// Writes one table's part of a batch and says per step what became of it (`outcomes`, by the
// steps' event). Statuses are the database's.
absl::Status WriteVersioned(const WriteContext& context, const std::vector<Step>& steps,
                            std::vector<Outcome>* outcomes);
absl::Status WriteCounting(const WriteContext& context, const std::vector<Step>& steps,
                           std::vector<Outcome>* outcomes);

// The weightier of what several tables say about one event.
inline void Note(Outcome outcome, Outcome* of_event) {
  constexpr int kWeights[] = {2, 1, 0, 3, 4};  // applied, superseded, ignored, conflict, foreign
  static_assert(std::size(kWeights) == static_cast<size_t>(Outcome::kForeign) + 1);
  const auto weight = [&](Outcome o) { return kWeights[static_cast<size_t>(o)]; };
  if (weight(outcome) > weight(*of_event)) *of_event = outcome;
}

inline bool Seen(const ApplyOptions& options, size_t event) {
  return !options.seen.empty() && options.seen[event];
}

// Whether the group has handled the event before.
inline bool Replays(const ApplyOptions& options, size_t event) {
  return Seen(options, event) || (!options.replays.empty() && options.replays[event]);
}

inline bool Covered(const ApplyOptions& options, size_t event) {
  return !options.covered.empty() && options.covered[event];
}

// The parameters of a set-based statement: one array per column, one element per row. A row is
// added from left to right.
class RowArrays {
 public:
  void BeginRow() { next_ = 0; }
  void BeginRow(const FoldedRow& row) {
    next_ = 0;
    for (const Cell& cell : row.key) Add(row.key_change->Text(cell));
  }

  template <class Scalar>
  void Add(const Scalar& value) {
    Next().Add(value);
  }
  void Add(const Value& value) {
    if (value.state == CellState::kText) {
      Next().Add(value.text);
    } else {
      AddNull();
    }
  }
  void AddNull() { Next().AddNull(); }

  // The arrays as parameters behind `first`.
  postgres::Params After(postgres::Params first) const {
    for (const postgres::Array& array : arrays_) first.Add(array);
    return first;
  }

 private:
  postgres::Array& Next() {
    if (next_ == arrays_.size()) arrays_.emplace_back();
    return arrays_[next_++];
  }

  std::vector<postgres::Array> arrays_;
  size_t next_ = 0;
};

}  // namespace lockstep::projections
