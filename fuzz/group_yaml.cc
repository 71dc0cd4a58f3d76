#include <filesystem>

#include "fuzz/fuzz_target.h"
#include "fuzz/input_file.h"
#include "fuzz/mapped.h"
#include "platform/status.h"
#include "projections/declare/group_file.h"

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
  const auto group = lockstep::projections::LoadGroup(world.file.path());
  if (group.ok()) return;
  LOCKSTEP_HOLDS(lockstep::MessageOf(group.status()).find(world.file.path()) != std::string::npos);
}
