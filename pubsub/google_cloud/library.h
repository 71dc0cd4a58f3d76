#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/cloud/options.h"
#include "google/cloud/pubsub/retry_policy.h"
#include "google/cloud/pubsub/subscription.h"
#include "google/cloud/pubsub/topic.h"
#include "google/cloud/status.h"
#include "platform/clock.h"
#include "pubsub/grpc/channel/channel.h"

namespace lockstep::pubsub::google_cloud {

// What the parts of one transport share. Held by a shared_ptr: a publisher or receiver may outlive
// its transport.
struct Library {
  // Our own connection, for what the library hides: administration and the state of a subscription.
  std::shared_ptr<grpc_client::Client> client;
  // Server, credentials and timeouts, as every connection of the library is made with them. The
  // credentials are one object, so that gRPC shares sockets between connections.
  google::cloud::Options options;
};

absl::StatusOr<std::shared_ptr<Library>> OpenLibrary(const TransportOptions& options);

// The library's status ends here.
absl::Status FromCloud(const google::cloud::Status& status);

// Full names to the library's types; INVALID_ARGUMENT with a sentence.
absl::StatusOr<google::cloud::pubsub::Topic> ParseTopic(const std::string& name);
absl::StatusOr<google::cloud::pubsub::Subscription> ParseSubscription(const std::string& name);

// Retries what may pass for `patience` (zero = for ever). The library's own policies know neither a
// server that hangs (DEADLINE_EXCEEDED) nor one that loses its mind for a moment (UNKNOWN).
std::shared_ptr<google::cloud::pubsub::RetryPolicy> PatientRetryPolicy(Millis patience);

}  // namespace lockstep::pubsub::google_cloud
