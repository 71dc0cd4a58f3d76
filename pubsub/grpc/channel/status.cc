#include "pubsub/grpc/channel/status.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "platform/status.h"

namespace lockstep::pubsub::grpc_client {

absl::Status FromGrpc(const grpc::Status& status, const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnavailable) {
    return MakeStatus(code, "Pub/Sub at {} can't be reached: {}", address, status.error_message());
  }
  if (code == absl::StatusCode::kDeadlineExceeded) {
    return MakeStatus(code, "Pub/Sub at {} did not answer in time: {}", address,
                      status.error_message());
  }
  return absl::Status(code, status.error_message());
}

bool MayPass(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

std::map<std::string, std::string> AckFailures(const grpc::Status& status) {
  std::map<std::string, std::string> failures;
  google::rpc::Status details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) {
    return failures;
  }
  for (const auto& detail : details.details()) {
    google::rpc::ErrorInfo info;
    if (!detail.Is<google::rpc::ErrorInfo>() || !detail.UnpackTo(&info)) continue;
    for (const auto& [id, reason] : info.metadata()) {
      if (reason.starts_with("PERMANENT_FAILURE") || reason.starts_with("TRANSIENT_FAILURE")) {
        failures[id] = reason;
      }
    }
  }
  return failures;
}

}  // namespace lockstep::pubsub::grpc_client
