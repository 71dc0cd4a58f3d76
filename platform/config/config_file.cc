#include "platform/config/config_file.h"

#include "platform/config/config_tree.h"
#include "platform/status.h"

namespace lockstep {

absl::StatusOr<std::string> ReadTopKey(const std::string& file, const std::string& key) {
  ASSIGN_OR_RETURN(const YAML::Node root, config_internal::LoadFile(file));
  const YAML::Node value = config_internal::Child(root, key);
  if (!value.IsDefined()) return std::string();
  auto text = config_internal::Flatten(value);
  if (!text.ok()) return InvalidArgument("{}: {}: {}", file, key, MessageOf(text.status()));
  return text;
}

}  // namespace lockstep
