#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// The text of one key at the top of a configuration file, whatever else the file has; empty when it
// has none. For programs that read files of several daemons.
absl::StatusOr<std::string> ReadTopKey(const std::string& file, const std::string& key);

}  // namespace lockstep
