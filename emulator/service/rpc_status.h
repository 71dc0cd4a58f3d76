#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "platform/status.h"

namespace lockstep::emulator {

// The payload of an absl::Status that becomes the details of a gRPC one.
inline constexpr char kStatusDetails[] = "type.googleapis.com/google.rpc.Status";

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto details = status.GetPayload(kStatusDetails);
  return {static_cast<grpc::StatusCode>(status.code()), std::string(MessageOf(status)),
          details ? std::string(*details) : ""};
}

}  // namespace lockstep::emulator
