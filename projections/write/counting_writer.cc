#include "platform/status.h"
#include "projections/write/row_arrays.h"
#include "projections/write/table_writer.h"

namespace lockstep::projections {

absl::Status WriteCounting(const WriteContext& context, const std::vector<Step>& steps,
                           std::vector<Outcome>* outcomes) {
  const Table& table = context.table;
  const size_t cells = table.key.size() + table.values.size();
  RowArrays arrays(cells);
  size_t counted = 0;
  for (const Step& step : steps) {
    const auto& seen = context.options.seen;
    if (!seen.empty() && seen[step.event]) {  // never counted twice
      Note(Outcome::kSuperseded, &(*outcomes)[step.event]);
      continue;
    }
    Note(Outcome::kApplied, &(*outcomes)[step.event]);
    ++counted;
    for (size_t i = 0; i < cells; ++i) {
      const Cell& cell = step.change->cells[step.row->first_cell + i];
      RowArrays::Add({cell.state, step.change->Text(cell)}, &arrays[i]);
    }
  }
  if (counted == 0) return absl::OkStatus();
  postgres::Params params;
  arrays.AppendTo(&params);
  return context.transaction.Execute(context.plan.count.Get(), params).status();
}

}  // namespace lockstep::projections
