#include <filesystem>

#include "fuzz/fuzz_target.h"
#include "fuzz/input_file.h"
#include "fuzz/mapped.h"
#include "platform/status.h"
#include "projections/declare/group_file.h"
#include "projections/write/group_projector.h"

using lockstep::projections::GroupDeclaration;

namespace {

struct World {
  World() {
    // What an input may name as `descriptors: fuzz_events.pb`.
    std::filesystem::create_symlink(lockstep::fuzz::Folder() + "/fuzz_events.pb",
                                    file.folder() + "/fuzz_events.pb");
  }
  lockstep::fuzz::InputFile file{"group.yaml"};
};

}  // namespace

// The file of a consumer group: it loads, or every mistake has a place.
LOCKSTEP_FUZZ_TARGET(group_yaml) {
  static const World world;
  world.file.Write(input);
  GroupDeclaration declaration;
  const auto plan = lockstep::projections::LoadPlan(world.file.path(), {}, &declaration);
  if (plan.ok()) return;
  LOCKSTEP_HOLDS(lockstep::MessageOf(plan.status()).find(world.file.path()) != std::string::npos);
}
