#pragma once

#include "absl/status/status.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::emulator {

// The service's limits on what is published: INVALID_ARGUMENT names the first that is exceeded.
absl::Status CheckPublish(const google::pubsub::v1::PublishRequest& request);

}  // namespace lockstep::emulator
