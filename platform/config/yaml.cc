#include "platform/config/yaml.h"

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxValues = 100'000;

bool TooMuch(const YAML::Node& node, int depth, int* values) {
  if (depth > kMaxDepth || ++*values > kMaxValues) return true;
  for (const auto& item : node) {
    if (node.IsMap()
            ? TooMuch(item.first, depth + 1, values) || TooMuch(item.second, depth + 1, values)
            : TooMuch(item, depth + 1, values)) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<YAML::Node> LoadYaml(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  try {
    YAML::Node root = YAML::Load(text);
    int values = 0;
    if (!TooMuch(root, 0, &values)) return root;
  } catch (const YAML::Exception& e) {
    return InvalidArgument("{}:{}:{}: not YAML: {}", file, e.mark.line + 1, e.mark.column + 1,
                           e.msg);
  }
  return InvalidArgument(
      "{}: too deep or too large: more than {} levels or {} values once its aliases are followed; "
      "write out what an alias stands for, or leave it out",
      file, kMaxDepth, kMaxValues);
}

std::string PlaceOf(const std::string& file, const YAML::Node& node) {
  if (!node.IsDefined() || node.Mark().is_null()) return file;
  return fmt::format("{}:{}:{}", file, node.Mark().line + 1, node.Mark().column + 1);
}

YAML::Node Child(const YAML::Node& node, const std::string& key) {
  if (!node.IsDefined() || !node.IsMap()) return YAML::Node(YAML::NodeType::Undefined);
  const YAML::Node found = node[key];
  return found.IsDefined() ? found : YAML::Node(YAML::NodeType::Undefined);
}

}  // namespace lockstep
