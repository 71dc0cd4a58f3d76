#include "platform/status.h"
#include "projections/write/table_writer.h"

namespace lockstep::projections {

absl::Status WriteCounting(const WriteContext& context, const std::vector<Step>& steps,
                           std::vector<Outcome>* outcomes) {
  const size_t cells = context.table.key.size() + context.table.values.size();
  RowArrays arrays;
  bool counted = false;
  for (const Step& step : steps) {
    const bool seen = context.options.Seen(step.event);  // never counted twice
    Note(seen ? Outcome::kSuperseded : Outcome::kApplied, &(*outcomes)[step.event]);
    if (seen) continue;
    counted = true;
    arrays.BeginRow();
    for (size_t i = 0; i < cells; ++i) arrays.Add(step.At(i));
  }
  if (!counted) return absl::OkStatus();
  return context.transaction.Execute(context.plan.count.Get(), arrays.After({})).status();
}

}  // namespace lockstep::projections
