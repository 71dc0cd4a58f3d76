#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lockstep::testing {

// The address of Google's Pub/Sub emulator: the one at LOCKSTEP_GOOGLE_EMULATOR (host:port; or in
// the file LOCKSTEP_GOOGLE_EMULATOR_FILE), or else one that the first call starts for this process
// from the package google-cloud-cli-pubsub-emulator. NOT_FOUND says what is missing.
absl::StatusOr<std::string> GoogleEmulatorAddress();

}  // namespace lockstep::testing
