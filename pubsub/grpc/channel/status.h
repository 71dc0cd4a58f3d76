#pragma once

#include <grpcpp/support/status.h>

#include <map>
#include <string>

#include "absl/status/status.h"

namespace lockstep::pubsub::grpc_client {

// gRPC's status ends here: the same code, and for a server that can't be reached a sentence that
// names `address`.
absl::Status FromGrpc(const grpc::Status& status, const std::string& address);

// Faults that may pass by themselves: the same request may be sent again.
bool MayPass(absl::StatusCode code);

// What an exactly-once subscription says about each ack id that it refused: id -> reason, such as
// PERMANENT_FAILURE_INVALID_ACK_ID. Empty when the status carries no such detail.
std::map<std::string, std::string> AckFailures(const grpc::Status& status);

}  // namespace lockstep::pubsub::grpc_client
