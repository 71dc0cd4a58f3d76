#include "runner/verify/verify_target.h"

#include <filesystem>
#include <set>

#include "platform/status.h"

namespace lockstep::runner {

absl::StatusOr<std::vector<VerifyTarget>> LoadVerifyTargets(const std::vector<std::string>& files,
                                                            const projections::GroupPlan& group) {
  std::vector<VerifyTarget> targets;
  std::set<std::string> names;
  for (const std::string& file : files) {
    VerifyTarget target{.file = std::filesystem::absolute(file).string()};
    ASSIGN_OR_RETURN(target.declaration, publisher::LoadDeclaration(file));
    if (!names.insert(target.declaration.name).second) {
      return InvalidArgument("{}: backfill {} is there twice", file, target.declaration.name);
    }
    auto tables = verify::PlanVerify(target.declaration, group, "");
    if (!tables.ok()) return InvalidArgument("{}: {}", file, MessageOf(tables.status()));
    target.tables = *std::move(tables);
    targets.push_back(std::move(target));
  }
  return targets;
}

}  // namespace lockstep::runner
