#include "pubsub/transport.h"

#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/grpc/transport.h"
#ifdef LOCKSTEP_WITH_GOOGLE_CLOUD
#include "pubsub/google_cloud/library.h"
#endif

namespace lockstep::pubsub {
namespace {

// A transport over what its parts share: grpc_client's Client, or google_cloud's Library. Each has
// its own MakePublisher and MakeReceiver. Administration is the same for both: google-cloud-cpp's
// admin clients change from version to version, the generated stubs don't.
template <typename Shared>
class TransportOver : public Transport {
 public:
  TransportOver(std::shared_ptr<Shared> shared, std::unique_ptr<Admin> admin)
      : shared_(std::move(shared)), admin_(std::move(admin)) {}

  std::unique_ptr<Publisher> NewPublisher(const PublisherOptions& options) override {
    return MakePublisher(options, shared_);
  }

  std::unique_ptr<Receiver> NewReceiver(const ReceiverOptions& options,
                                        DeliverySink& sink) override {
    return MakeReceiver(options, sink, shared_);
  }

  Admin& admin() override { return *admin_; }

 private:
  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<Admin> admin_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const TransportOptions& options) {
  if (!options.emulator_host.empty()) {
    log::Info("an emulator takes the place of Pub/Sub", {{"address", options.emulator_host}});
  }
  switch (options.kind) {
    case TransportKind::kGrpc: {
      ASSIGN_OR_RETURN(auto client, grpc_client::Connect(options));
      return std::make_unique<TransportOver<grpc_client::Client>>(client,
                                                                  grpc_client::MakeAdmin(client));
    }
    case TransportKind::kGoogleCloudCpp: {
#ifdef LOCKSTEP_WITH_GOOGLE_CLOUD
      ASSIGN_OR_RETURN(auto library, google_cloud::OpenLibrary(options));
      return std::make_unique<TransportOver<google_cloud::Library>>(
          library, grpc_client::MakeAdmin(library->client));
#else
      return InvalidArgument(
          "pubsub.transport is google-cloud-cpp, and this build has none: use grpc, or build with "
          "google-cloud-cpp's pubsub library in CMAKE_PREFIX_PATH");
#endif
    }
  }
  return InvalidArgument("pubsub.transport: there is no such transport");
}

}  // namespace lockstep::pubsub
