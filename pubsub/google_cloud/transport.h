#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "pubsub/transport.h"

namespace lockstep::pubsub::google_cloud {

// The transport on google-cloud-cpp's pubsub library, in builds that have it. What it can't do as
// well as the default one: docs/google-cloud-cpp.md.
absl::StatusOr<std::unique_ptr<Transport>> MakeGoogleCloudTransport(
    const TransportOptions& options);

}  // namespace lockstep::pubsub::google_cloud
