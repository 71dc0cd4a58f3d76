#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// The keys at the top of a YAML file: what tells one kind of file from another.
absl::StatusOr<std::set<std::string>> ReadTopKeys(const std::string& file);

}  // namespace lockstep
