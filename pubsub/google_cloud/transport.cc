#include "pubsub/google_cloud/transport.h"

#include <utility>

#include "platform/status.h"
#include "pubsub/google_cloud/library.h"
#include "pubsub/google_cloud/publisher.h"
#include "pubsub/google_cloud/receiver.h"
#include "pubsub/grpc/admin.h"

namespace lockstep::pubsub::google_cloud {
namespace {

class GoogleCloudTransport : public Transport {
 public:
  explicit GoogleCloudTransport(std::shared_ptr<Library> library)
      : library_(std::move(library)), admin_(library_->client) {}

  std::unique_ptr<Publisher> NewPublisher(const PublisherOptions& options) override {
    return std::make_unique<CloudPublisher>(options, library_);
  }

  std::unique_ptr<Receiver> NewReceiver(const ReceiverOptions& options,
                                        DeliverySink& sink) override {
    return std::make_unique<CloudReceiver>(options, sink, library_);
  }

  Admin& admin() override { return admin_; }

 private:
  const std::shared_ptr<Library> library_;
  // The library's own admin clients change from version to version; the generated stubs don't, and
  // they are the same for both transports.
  grpc_client::GrpcAdmin admin_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeGoogleCloudTransport(
    const TransportOptions& options) {
  ASSIGN_OR_RETURN(auto library, OpenLibrary(options));
  return std::make_unique<GoogleCloudTransport>(std::move(library));
}

}  // namespace lockstep::pubsub::google_cloud
