#include "platform/config/top_keys.h"

#include "platform/config/config_tree.h"
#include "platform/status.h"

namespace lockstep {

absl::StatusOr<std::set<std::string>> ReadTopKeys(const std::string& file) {
  ASSIGN_OR_RETURN(const YAML::Node root, config_internal::LoadFile(file));
  std::set<std::string> keys;
  for (const auto& member : root) keys.insert(member.first.Scalar());
  return keys;
}

}  // namespace lockstep
