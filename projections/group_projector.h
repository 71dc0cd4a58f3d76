#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "projections/mapping.h"
#include "projections/projection.h"
#include "projections/projector.h"
#include "projections/table.h"
#include "projections/table_plan.h"

namespace lockstep::projections {

// A projection in C++ with the place of its tables among the group's.
struct CodeProjection {
  std::shared_ptr<const Projection> projection;
  std::vector<CodeTable> tables;
  uint32_t first_table = 0;
};

// A message field that some mapping uses, to notice that it was renumbered or retyped.
struct UsedField {
  std::string message;
  std::string field;
  std::string numbers;
  std::string type;
  std::string place;
};

// Everything that a group's file says, compiled.
struct GroupPlan {
  std::string group;
  std::string state_schema;
  std::string table_suffix;
  Mappings mappings;
  std::vector<Table> tables;
  std::vector<CodeProjection> code;
  std::vector<UsedField> fields;
};

struct GroupDeclaration;
struct LoadOptions;

// What LoadGroup makes its projector of; `declaration` gets the rest of the file.
absl::StatusOr<GroupPlan> LoadPlan(const std::string& file, const LoadOptions& options,
                                   GroupDeclaration* declaration);

// The projections of one group: mappings in, set-based statements out. Safe from any thread.
class GroupProjector : public Projector {
 public:
  explicit GroupProjector(GroupPlan plan);

  absl::StatusOr<std::unique_ptr<Change>> Map(const Event& event) const override;
  absl::StatusOr<std::vector<Outcome>> Apply(postgres::Transaction& transaction,
                                             const std::vector<const Change*>& changes,
                                             const ApplyOptions& options) const override;
  bool ParksOnGap(const Event& event) const override;
  bool MayPark() const override;
  absl::Status Check(postgres::Connection& connection) const override;
  std::vector<std::string> Tables() const override;

  const GroupPlan& plan() const { return plan_; }

 private:
  absl::StatusOr<std::shared_ptr<const TablePlan>> PlanOf(postgres::Transaction& transaction,
                                                          size_t table) const;
  void Forget(size_t table) const;

  const GroupPlan plan_;

  // Whether some table remembers its rows' aggregates.
  const bool owned_;

  mutable std::mutex mu_;
  // By table; made from the live table at first use, again after an error of configuration.
  mutable std::vector<std::shared_ptr<const TablePlan>> plans_;
};

}  // namespace lockstep::projections
