#include "platform/config/config_tree.h"

#include <filesystem>

#include "platform/status.h"

namespace lockstep::config_internal {
namespace {

// Whether `path` is a map that holds known keys.
bool IsParent(const std::string& path, const std::set<std::string>& known) {
  const auto first = known.lower_bound(path + ".");
  return first != known.end() && first->starts_with(path + ".");
}

// "conf/catalog.yaml" -> "catalog"
std::string WithoutFolderAndEnding(const std::string& file) {
  const std::filesystem::path name = std::filesystem::path(file).filename();
  return name.extension() == ".yaml" || name.extension() == ".yml" ? name.stem() : name;
}

}  // namespace

absl::StatusOr<YAML::Node> LoadFile(const std::string& file) {
  auto root = LoadYaml(file);
  if (absl::IsNotFound(root.status())) {
    return NotFound("configuration file {}. Name an existing file with --config.",
                    MessageOf(root.status()));
  }
  if (root.ok() && !root->IsMap() && !root->IsNull()) {
    return InvalidArgument("{}: a map of keys is wanted at the top of the file", file);
  }
  return root;
}

std::string Join(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

std::string ItemLabel(const YAML::Node& item, size_t index, std::string_view shorthand) {
  const auto short_label = [&](const YAML::Node& node) {
    const std::string text = node.Scalar().substr(0, node.Scalar().find('?'));  // may be a secret
    return shorthand == "name" ? node.Scalar() : WithoutFolderAndEnding(text);
  };
  if (item.IsScalar()) return short_label(item);
  const YAML::Node name = Child(item, "name");
  if (name.IsDefined() && name.IsScalar()) return name.Scalar();
  const YAML::Node named = Child(item, std::string(shorthand));
  if (named.IsDefined() && named.IsScalar()) return short_label(named);
  return fmt::format("{}", index);
}

std::string NearestKey(const std::string& key, const std::set<std::string>& known) {
  std::vector<std::string> candidates;
  candidates.reserve(known.size());
  for (const std::string& path : known) {
    candidates.push_back(path.ends_with(".*") ? path.substr(0, path.size() - 2) : path);
  }
  return NearestWord(key, candidates);
}

absl::StatusOr<std::string> Flatten(const YAML::Node& node) {
  const auto refused = absl::InvalidArgumentError("a plain value is wanted here");
  if (node.IsScalar()) return node.Scalar();
  if (node.IsNull()) return std::string();
  std::vector<std::string> parts;
  for (const auto& child : node) {
    if (node.IsMap()) {
      if (!child.second.IsScalar() && !child.second.IsSequence()) return refused;
      const auto add = [&](const YAML::Node& value) -> absl::Status {
        if (!value.IsScalar()) return absl::Status(refused);
        if (value.Scalar().find(',') != std::string::npos) {
          return InvalidArgument(
              "'{}' has a comma, which separates values here; an address has %2C", value.Scalar());
        }
        parts.push_back(child.first.Scalar() + "=" + value.Scalar());
        return absl::OkStatus();
      };
      if (child.second.IsSequence() && child.second.size() == 0) {
        return InvalidArgument("'{}' has an empty list: name a value, or leave it out",
                               child.first.Scalar());
      }
      if (child.second.IsScalar()) RETURN_IF_ERROR(add(child.second));
      for (const auto& value : child.second) RETURN_IF_ERROR(add(value));
    } else {
      if (!child.IsScalar()) return refused;
      parts.push_back(child.Scalar());
    }
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

void CheckUnknown(State& state, const YAML::Node& node, const std::string& path,
                  const std::set<std::string>& known) {
  if (known.contains(path) || !node.IsMap() || (!path.empty() && !IsParent(path, known))) return;
  for (const auto& child : node) {
    const std::string key = Join(path, child.first.Scalar());
    if (known.contains(key) || IsParent(key, known)) {
      CheckUnknown(state, child.second, key, known);
      continue;
    }
    const std::string nearest = NearestKey(key, known);
    state.errors.push_back(
        fmt::format("{}: unknown key '{}'{}", PlaceOf(state.sources.file, child.first), key,
                    nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
  }
}

}  // namespace lockstep::config_internal
