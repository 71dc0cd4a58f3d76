#include "platform/version.h"

#include <fmt/format.h>

namespace lockstep {

const char* const kVersion = LOCKSTEP_VERSION;
const char* const kCommit = LOCKSTEP_COMMIT;
const char* const kTransports = LOCKSTEP_TRANSPORTS;

std::string BuildText() {
  return fmt::format("{} (commit {}, transports {})", kVersion, kCommit, kTransports);
}

}  // namespace lockstep
