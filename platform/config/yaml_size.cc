#include "platform/config/yaml_size.h"

#include <yaml-cpp/yaml.h>

#include "platform/status.h"

namespace lockstep {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxValues = 100'000;

bool TooMuch(const YAML::Node& node, int depth, int* values) {
  if (depth > kMaxDepth || ++*values > kMaxValues) return true;
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (TooMuch(item, depth + 1, values)) return true;
    }
  } else if (node.IsMap()) {
    for (const auto& item : node) {
      if (TooMuch(item.first, depth + 1, values) || TooMuch(item.second, depth + 1, values)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

absl::Status CheckYamlSize(const YAML::Node& root, const std::string& file) {
  int values = 0;
  if (!TooMuch(root, 0, &values)) return absl::OkStatus();
  return InvalidArgument(
      "{}: too deep or too large: more than {} levels or {} values once its aliases are followed; "
      "write out what an alias stands for, or leave it out",
      file, kMaxDepth, kMaxValues);
}

}  // namespace lockstep
