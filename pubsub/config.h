#pragma once

#include <string>

#include "platform/config/config.h"
#include "pubsub/transport.h"

namespace lockstep::pubsub {

// What a program needs to know to reach Pub/Sub.
struct PubsubOptions {
  std::string project = "lockstep";
  TransportOptions transport;
  bool force_emulator = false;  // even where credentials for the service are configured

  absl::Status Validate() const;
};

// A machine that holds credentials for the service is not one to talk to an emulator by an
// oversight. `credentials` is what GOOGLE_APPLICATION_CREDENTIALS says, or null.
absl::Status CheckEmulator(const PubsubOptions& options, const char* credentials);

// The keys of the section `pubsub`.
void Bind(ConfigSection& config, PubsubOptions& options);

}  // namespace lockstep::pubsub
