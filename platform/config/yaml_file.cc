#include "platform/config/yaml_file.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "platform/config/config.h"
#include "platform/config/yaml.h"
#include "platform/status.h"

namespace lockstep {

absl::Status YamlFile::Load() {
  ASSIGN_OR_RETURN(root_, LoadYaml(file_));
  return absl::OkStatus();
}

std::string YamlFile::Resolve(const std::string& path) const {
  const std::filesystem::path given(path);
  if (given.is_absolute()) return path;
  return (std::filesystem::path(file_).parent_path() / given).string();
}

YAML::Node YamlFile::Child(const YAML::Node& map, const std::string& key) {
  const YAML::Node child = map[key];
  if (child.IsDefined()) return child;
  return YAML::Node(YAML::NodeType::Undefined);
}

std::string YamlFile::Place(const YAML::Node& node) const { return PlaceOf(file_, node); }

absl::Status YamlFile::status() const {
  if (errors_.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(errors_, "\n"));
}

bool YamlFile::CheckMap(const YAML::Node& node, std::string_view what,
                        const std::vector<std::string>& keys) {
  if (!node.IsMap()) {
    Error(node, "{}: a map of keys is wanted here", what);
    return false;
  }
  std::set<std::string> seen;
  for (const auto& child : node) {
    const std::string key = child.first.IsScalar() ? child.first.Scalar() : "";
    if (!seen.insert(key).second) {
      Error(child.first, "{}: key '{}' stands here twice; keep one", what, key);
    }
    if (keys.empty() || std::ranges::find(keys, key) != keys.end()) continue;
    const std::string nearest = NearestWord(key, keys);
    Error(child.first, "{}: unknown key '{}'; {}", what, key,
          nearest.empty() ? fmt::format("known are {}", fmt::join(keys, ", "))
                          : fmt::format("did you mean '{}'?", nearest));
  }
  return true;
}

std::optional<std::string> YamlFile::Text(const YAML::Node& map, const std::string& key) {
  const YAML::Node node = map[key];
  if (!node.IsDefined() || node.IsNull()) return std::nullopt;
  if (!node.IsScalar()) {
    Error(node, "{}: a plain value is wanted here", key);
    return std::nullopt;
  }
  return node.Scalar();
}

std::string YamlFile::Required(const YAML::Node& map, const std::string& key,
                               std::string_view cure) {
  const auto text = Text(map, key);
  if (text.has_value() && !text->empty()) return *text;
  if (!map[key].IsDefined() || map[key].IsNull() || map[key].IsScalar()) {
    Error(map, "'{}' is missing; {}", key, cure);
  }
  return "";
}

std::vector<YAML::Node> YamlFile::Scalars(const YAML::Node& node, std::string_view what) {
  if (!node.IsDefined() || node.IsNull()) return {};
  if (node.IsScalar()) return {node};
  std::vector<YAML::Node> scalars;
  if (!node.IsSequence()) {
    Error(node, "{}: a value or a list of values is wanted here", what);
    return scalars;
  }
  for (const auto& item : node) {
    if (item.IsScalar() || item.IsNull()) {
      scalars.push_back(item);
    } else {
      Error(item, "{}: a plain value is wanted here", what);
    }
  }
  return scalars;
}

std::optional<bool> YamlFile::Either(const YAML::Node& map, const std::string& key,
                                     std::string_view yes, std::string_view no) {
  const auto text = Text(map, key);
  if (!text.has_value()) return std::nullopt;
  if (*text != yes && *text != no) {
    Error(map[key], "{}: '{}' is neither {} nor {}", key, *text, yes, no);
  }
  return *text != no;
}

}  // namespace lockstep
