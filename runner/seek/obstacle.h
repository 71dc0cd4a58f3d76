#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace lockstep::runner {

// What keeps a group from running.
struct Obstacle {
  bool halts = false;  // needs a cure; otherwise it passes by itself
  std::string reason;
};

// A fault of the connection passes; what the database says about tables does not.
std::optional<Obstacle> FromDatabase(const absl::Status& status);

}  // namespace lockstep::runner
