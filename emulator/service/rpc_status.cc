#include "emulator/service/rpc_status.h"

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "platform/status.h"

namespace lockstep::emulator {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(MessageOf(status))};
}

grpc::Status ToGrpc(const AckAnswer& answer) {
  const AckReport& report = answer.report;
  if (report.invalid.empty() && report.unordered.empty() && answer.temporary.empty()) {
    return grpc::Status::OK;
  }
  google::rpc::ErrorInfo info;
  info.set_reason("EXACTLY_ONCE_ACKID_FAILURE");
  info.set_domain("pubsub.googleapis.com");
  auto& metadata = *info.mutable_metadata();
  for (const auto& id : report.invalid) metadata[id] = "PERMANENT_FAILURE_INVALID_ACK_ID";
  for (const auto& id : report.unordered) metadata[id] = "TRANSIENT_FAILURE_UNORDERED_ACK_ID";
  for (const auto& id : answer.temporary) metadata[id] = "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE";
  // The request's status is as lasting as its worst id.
  const auto code =
      report.invalid.empty() ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::INVALID_ARGUMENT;
  google::rpc::Status status;
  status.set_code(code);
  status.set_message("Some acknowledgement ids in the request were invalid or failed.");
  status.add_details()->PackFrom(info);
  return {code, status.message(), status.SerializeAsString()};
}

}  // namespace lockstep::emulator
