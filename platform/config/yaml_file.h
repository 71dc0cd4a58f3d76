#pragma once

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace lockstep {

// A YAML file and the mistakes found in it, each with its place.
class YamlFile {
 public:
  explicit YamlFile(std::string file) : file_(std::move(file)) {}

  absl::Status Load();  // not readable, or not YAML
  const YAML::Node& root() const { return root_; }
  // A path in the file is relative to the file.
  std::string Resolve(const std::string& path) const;

  std::string Place(const YAML::Node& node) const;
  template <typename... Args>
  void Error(const YAML::Node& at, fmt::format_string<Args...> what, Args&&... args) {
    errors_.push_back(
        fmt::format("{}: {}", Place(at), fmt::format(what, std::forward<Args>(args)...)));
  }
  absl::Status status() const;

  // A member of a map; undefined when there is none (yaml-cpp's own answer throws when it is used).
  static YAML::Node Child(const YAML::Node& map, const std::string& key);

  // Whether it is a map with none but these keys, each once; else reports.
  bool CheckMap(const YAML::Node& node, std::string_view what,
                const std::vector<std::string>& keys);
  // The text of a scalar; reports anything else. nullopt when there is none.
  std::optional<std::string> Text(const YAML::Node& map, const std::string& key);
  // The same, and reports when there is none.
  std::string Required(const YAML::Node& map, const std::string& key, std::string_view cure);
  // A scalar or a list of scalars.
  std::vector<YAML::Node> Scalars(const YAML::Node& node, std::string_view what);
  // Which of two words it is; reports any other. nullopt when there is none.
  std::optional<bool> Either(const YAML::Node& map, const std::string& key, std::string_view yes,
                             std::string_view no);
  bool Flag(const YAML::Node& map, const std::string& key) {
    return Either(map, key, "true", "false").value_or(false);
  }

 private:
  std::string file_;
  YAML::Node root_;
  std::vector<std::string> errors_;
};

}  // namespace lockstep
