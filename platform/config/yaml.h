#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// The YAML of a file. Aliases let a short text stand for a huge or an endless one (`a: &a [*a]`):
// what is more than 64 levels deep or has more than 100,000 values is refused. kNotFound when the
// file can't be read; the status names it.
absl::StatusOr<YAML::Node> LoadYaml(const std::string& file);

// "file.yaml:12:3"
std::string PlaceOf(const std::string& file, const YAML::Node& node);

// The value of a key, undefined when there is none. Reads through a const node: otherwise asking
// for a key would put it there. (And nodes are pointed at with reset: an assignment would change
// the tree.)
YAML::Node Child(const YAML::Node& node, const std::string& key);

}  // namespace lockstep
