#pragma once

#include "absl/status/status.h"
#include "pubsub/message.h"

namespace lockstep::pubsub {

// INVALID_ARGUMENT with a sentence when Pub/Sub would refuse the message whatever the topic: one
// bad message refused by the server takes its whole request with it, so it is found before.
absl::Status CheckLimits(const Message& message);

}  // namespace lockstep::pubsub
