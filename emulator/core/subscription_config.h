#pragma once

#include "absl/status/status.h"
#include "emulator/core/delivery_queue.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "platform/clock.h"

namespace lockstep::emulator {

// UNIMPLEMENTED when something is set that we don't do, also in the part of an update.
absl::Status RefuseUnsupportedSubscription(const google::pubsub::v1::Subscription& config);

// Checks what a client asks of a new or changed subscription against the service's bounds and fills
// in its defaults. Does not look at other resources.
absl::Status CheckSubscription(google::pubsub::v1::Subscription* config);

// `topic_retention`: what the topic keeps, its subscriptions may have: the longer one counts, for
// unacked messages too.
DeliveryPolicy PolicyOf(const google::pubsub::v1::Subscription& config, Millis topic_retention);
// How long it lives unused; 0 = for ever.
Millis TimeToLiveOf(const google::pubsub::v1::Subscription& config);

}  // namespace lockstep::emulator
