#pragma once

#include <functional>
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

// What gives this process credentials for the service, in words; empty = nothing that is known of.
// Nothing is asked over a network: a metadata server (GCE, GKE with Workload Identity, Cloud Run)
// is known by the environment, and by `product`, the file in which firmware says whose machine it
// is.
using Env = std::function<const char*(const char* name)>;
std::string FindCredentials(const Env& env,
                            const std::string& product = "/sys/class/dmi/id/product_name");

// A machine that holds credentials for the service is not one to talk to an emulator by an
// oversight. `credentials`: as FindCredentials says.
absl::Status CheckEmulator(const PubsubOptions& options, const std::string& credentials);

// The keys of the section `pubsub`.
void Bind(ConfigSection& config, PubsubOptions& options);

}  // namespace lockstep::pubsub
