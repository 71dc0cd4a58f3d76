#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "pubsub/admin.h"
#include "pubsub/publisher.h"
#include "pubsub/receiver.h"

namespace lockstep::pubsub {

enum class TransportKind { kGrpc, kGoogleCloudCpp };

struct TransportOptions {
  TransportKind kind = TransportKind::kGrpc;
  // host:port of an emulator, insecure. Empty = the service, with TLS and application default
  // credentials. PUBSUB_EMULATOR_HOST is read by the configuration, not here.
  std::string emulator_host;
  // A regional endpoint such as europe-west1-pubsub.googleapis.com:443: order holds within a
  // region only, so publishers of one topic pin one. Empty = the global endpoint.
  std::string endpoint;
  int channels = 1;
};

// Makes the three parts of the port over one client library. Publisher and runner know this header
// and those that it includes, and nothing else of Pub/Sub.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::unique_ptr<Publisher> NewPublisher(const PublisherOptions& options) = 0;
  // `sink` outlives the receiver.
  virtual std::unique_ptr<Receiver> NewReceiver(const ReceiverOptions& options,
                                                DeliverySink& sink) = 0;
  virtual Admin& admin() = 0;
};

// INVALID_ARGUMENT with a sentence where this build lacks the transport.
absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const TransportOptions& options);

}  // namespace lockstep::pubsub
