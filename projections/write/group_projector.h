#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "projections/model/projector.h"
#include "projections/plan/group_plan.h"
#include "projections/plan/table_plan.h"
#include "projections/write/function_calls.h"

namespace lockstep::projections {

// The projections of one group: mappings in, set-based statements out. Safe from any thread.
class GroupProjector : public Projector {
 public:
  explicit GroupProjector(GroupPlan plan);

  absl::StatusOr<std::unique_ptr<Change>> Map(const Event& event) const override;
  absl::StatusOr<std::vector<Outcome>> Apply(postgres::Transaction& transaction,
                                             const std::vector<const Change*>& changes,
                                             const ApplyOptions& options) const override;
  bool ParksOnGap(const Event& event) const override;
  bool LeavesNothing(const Event& event) const override;
  bool MayPark() const override;
  absl::Status Check(postgres::Connection& connection) const override;
  std::string Mapping() const override { return plan_.mapping; }
  std::vector<std::string> Tables() const override;
  std::vector<std::string> Columns() const override;
  std::vector<std::string> TablesOfFunctions() const override;
  std::span<const Call> Calls() const override { return plan_.mappings.calls; }
  bool MindsReplays() const override;
  std::string NeedsEachEvent() const override;

  const GroupPlan& plan() const { return plan_; }

 private:
  absl::StatusOr<std::shared_ptr<const TablePlan>> PlanOf(postgres::Transaction& transaction,
                                                          size_t table) const;
  void NoteOutside(const std::vector<const Change*>& changes, const ApplyOptions& options,
                   std::vector<Outcome>* outcomes) const;

  const GroupPlan plan_;

  // Whether some table remembers its rows' aggregates.
  const bool owned_;
  const FunctionCalls functions_;

  mutable std::mutex mu_;
  // By table; made from the live table at first use, again after an error of configuration.
  mutable std::vector<std::shared_ptr<const TablePlan>> plans_;
};

// code_projection.cc: the side that calls projections written in C++, and fences what they throw.

// Adds the projection's tables to the plan.
absl::Status AddCode(std::shared_ptr<const Projection> projection, GroupPlan* plan);
absl::Status MapCode(const GroupPlan& plan, const Event& event, MappedChange* change);
// One that throws when it is asked has the event wait: that keeps its order, whatever it meant.
bool CodeParksOnGap(const GroupPlan& plan, const Event& event);
absl::Status WriteCode(const GroupPlan& plan, postgres::Transaction& transaction,
                       const std::vector<const Change*>& changes, const ApplyOptions& options,
                       std::vector<Outcome>* outcomes);

}  // namespace lockstep::projections
