#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::projections {

// A hash of what a YAML file says: the same whatever its comments, blanks and the order of keys.
class Fingerprint {
 public:
  void Add(const YAML::Node& node);
  void Add(std::string_view bytes);
  std::string Hex() const;  // 16 digits

 private:
  std::string text_;
};

}  // namespace lockstep::projections
