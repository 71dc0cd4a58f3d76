#pragma once

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "platform/config/config.h"
#include "platform/config/yaml.h"

// The parts of config.cc that know yaml-cpp's trees; nobody else includes this.
namespace lockstep::config_internal {

struct Node {
  YAML::Node yaml{YAML::NodeType::Undefined};  // undefined where the file says nothing
  std::string place;                           // where `yaml` itself can't tell
};

// What the sections of one reading share.
struct State {
  Config::Sources sources;
  std::vector<ConfigKey> keys;
  std::vector<std::string> errors;
  std::set<std::string> used_flags;
  bool describing = false;

  void Complain(std::string_view place, std::string_view path, std::string_view message) {
    errors.push_back(fmt::format("{}: {}: {}", place, path, message));
  }
};

// The map at the top of a file (or null); the status names the file.
absl::StatusOr<YAML::Node> LoadFile(const std::string& file);

// "relay" and "batch_size" -> "relay.batch_size"
std::string Join(std::string_view path, std::string_view name);

// What an item of a list is called in paths: its `name` or shorthand, else its index. A shorthand
// that is a file loses its folders and its ending: conf/catalog.yaml is "catalog".
std::string ItemLabel(const YAML::Node& item, size_t index, std::string_view shorthand);

// The text of a key's value in the file; lists and maps of scalars become "a,b" and "a=b,c=d".
absl::StatusOr<std::string> Flatten(const YAML::Node& node);

// The nearest of the `known` keys to `key`, or empty when none is near.
std::string NearestKey(const std::string& key, const std::set<std::string>& known);

// Complains about every key below `node` that is not `known`.
void CheckUnknown(State& state, const YAML::Node& node, const std::string& path,
                  const std::set<std::string>& known);

}  // namespace lockstep::config_internal
