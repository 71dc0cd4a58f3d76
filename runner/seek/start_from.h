#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "offsets/epoch.h"

namespace lockstep::runner {

// `start_from` of the configuration: committed, earliest, latest, a time, snapshot:NAME. Counts on
// a group's first start only. `latest` becomes a fixed time: `now`.
absl::StatusOr<offsets::WantedSeek> ParseStartFrom(const std::string& text, WallTime now);

}  // namespace lockstep::runner
