#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "google/cloud/options.h"
#include "google/cloud/pubsub/retry_policy.h"
#include "google/cloud/status.h"
#include "platform/clock.h"
#include "platform/status.h"
#include "pubsub/grpc/channel/channel.h"
#include "pubsub/names.h"
#include "pubsub/transport.h"

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

// The port's Publisher and Receiver (publisher.cc, receiver.cc).
std::unique_ptr<Publisher> MakePublisher(const PublisherOptions& options,
                                         std::shared_ptr<Library> library);
std::unique_ptr<Receiver> MakeReceiver(const ReceiverOptions& options, DeliverySink& sink,
                                       std::shared_ptr<Library> library);

// The library's status ends here.
absl::Status FromCloud(const google::cloud::Status& status);

// A full name to the library's Topic or Subscription; INVALID_ARGUMENT with a sentence. `kind` as
// in "topic".
template <typename Name>
absl::StatusOr<Name> ParseName(const std::string& name, std::string_view kind) {
  Name parsed{std::string(ProjectOf(name)), std::string(ShortName(name))};
  const bool whole = !ProjectOf(name).empty() && !ShortName(name).empty();
  if (whole && parsed.FullName() == name) return parsed;
  return InvalidArgument("'{}' is no {}: it must read projects/PROJECT/{}s/{}", name, kind, kind,
                         absl::AsciiStrToUpper(std::string(kind)));
}

// Retries what may pass for `patience` (zero = for ever). The library's own policies know neither a
// server that hangs (DEADLINE_EXCEEDED) nor one that loses its mind for a moment (UNKNOWN).
std::shared_ptr<google::cloud::pubsub::RetryPolicy> PatientRetryPolicy(Millis patience);

}  // namespace lockstep::pubsub::google_cloud
