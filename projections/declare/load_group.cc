// Apart from group_file.cc: the fuzz targets read files and have no projector.
#include <utility>

#include "platform/status.h"
#include "projections/declare/group_file.h"

namespace lockstep::projections {

absl::StatusOr<GroupDeclaration> LoadGroup(const std::string& file, const LoadOptions& options) {
  GroupDeclaration declaration;
  ASSIGN_OR_RETURN(GroupPlan plan, LoadPlan(file, options, &declaration));
  declaration.projector = std::make_unique<GroupProjector>(std::move(plan));
  return declaration;
}

}  // namespace lockstep::projections
