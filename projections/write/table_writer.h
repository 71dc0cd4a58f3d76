#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
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
void Note(Outcome outcome, Outcome* of_event);

}  // namespace lockstep::projections
