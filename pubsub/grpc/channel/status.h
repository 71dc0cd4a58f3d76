#pragma once

#include <grpcpp/support/status.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "platform/retry_policy.h"

namespace lockstep::pubsub::grpc_client {

// gRPC's status ends here: the same code, and for a server that can't be reached a sentence that
// names `address`.
absl::Status FromGrpc(const grpc::Status& status, const std::string& address);

// Faults that may pass by themselves: the same request may be sent again.
bool MayPass(absl::StatusCode code);

// How they are tried again: as often as the deadline allows, after waits that double up to `cap`.
constexpr RetryPolicy WithoutEnd(Millis base, Millis cap, double jitter = 0.3) {
  return {.max_attempts = 0,
          .base = base,
          .factor = 2,
          .cap = cap,
          .jitter = RetryPolicy::Jitter::kProportional,
          .jitter_amount = jitter};
}

// What an exactly-once subscription says about each ack id that it refused: id -> reason, such as
// PERMANENT_FAILURE_INVALID_ACK_ID. Empty when the status carries no such detail.
std::map<std::string, std::string> AckFailures(const grpc::Status& status);

}  // namespace lockstep::pubsub::grpc_client
