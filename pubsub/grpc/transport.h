#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "pubsub/transport.h"

namespace lockstep::pubsub::grpc_client {

// The default transport: our own client on gRPC's callback API. FAILED_PRECONDITION with a sentence
// when the service is meant and there are no application default credentials.
absl::StatusOr<std::unique_ptr<Transport>> MakeGrpcTransport(const TransportOptions& options);

}  // namespace lockstep::pubsub::grpc_client
