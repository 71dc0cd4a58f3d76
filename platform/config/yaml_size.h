#pragma once

#include <string>

#include "absl/status/status.h"

namespace YAML {
class Node;
}

namespace lockstep {

// Aliases let a short YAML text stand for a huge or an endless one (`a: &a [*a]`). Refuses what is
// more than 64 levels deep or has more than 100,000 values; the status names the file.
absl::Status CheckYamlSize(const YAML::Node& root, const std::string& file);

}  // namespace lockstep
