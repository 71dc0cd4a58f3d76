#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "state/epochs.h"

namespace lockstep::runner {

// `start_from` of the configuration: committed, earliest, latest, a time, snapshot:NAME. Counts on
// a group's first start only. `latest` becomes a fixed time: `now`.
absl::StatusOr<state::WantedSeek> ParseStartFrom(const std::string& text, WallTime now);

}  // namespace lockstep::runner
