#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "emulator/faults/ack_path.h"

namespace lockstep::emulator {

grpc::Status ToGrpc(const absl::Status& status);

// With exactly-once delivery a request fails when one of its ids does: an ErrorInfo in the
// status's details says which, and why.
grpc::Status ToGrpc(const AckAnswer& answer);

}  // namespace lockstep::emulator
