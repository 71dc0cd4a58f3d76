#include "pubsub/transport.h"

#include "platform/status.h"
#include "pubsub/grpc/transport.h"
#ifdef LOCKSTEP_WITH_GOOGLE_CLOUD
#include "pubsub/google_cloud/transport.h"
#endif

namespace lockstep::pubsub {

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const TransportOptions& options) {
  switch (options.kind) {
    case TransportKind::kGrpc:
      return grpc_client::MakeGrpcTransport(options);
    case TransportKind::kGoogleCloudCpp:
#ifdef LOCKSTEP_WITH_GOOGLE_CLOUD
      return google_cloud::MakeGoogleCloudTransport(options);
#else
      return InvalidArgument(
          "pubsub.transport is google-cloud-cpp, and this build has none: use grpc, or build with "
          "google-cloud-cpp's pubsub library in CMAKE_PREFIX_PATH");
#endif
  }
  return InvalidArgument("pubsub.transport: there is no such transport");
}

}  // namespace lockstep::pubsub
