#include "pubsub/grpc/transport.h"

#include <utility>

#include "platform/status.h"
#include "pubsub/grpc/admin.h"
#include "pubsub/grpc/channel/channel.h"
#include "pubsub/grpc/publish/publisher.h"
#include "pubsub/grpc/receive/receiver.h"

namespace lockstep::pubsub::grpc_client {
namespace {

class GrpcTransport : public Transport {
 public:
  explicit GrpcTransport(std::shared_ptr<Client> client)
      : client_(std::move(client)), admin_(client_) {}

  std::unique_ptr<Publisher> NewPublisher(const PublisherOptions& options) override {
    return std::make_unique<GrpcPublisher>(options, client_);
  }

  std::unique_ptr<Receiver> NewReceiver(const ReceiverOptions& options,
                                        DeliverySink& sink) override {
    return std::make_unique<GrpcReceiver>(options, sink, client_);
  }

  Admin& admin() override { return admin_; }

 private:
  const std::shared_ptr<Client> client_;
  GrpcAdmin admin_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeGrpcTransport(const TransportOptions& options) {
  ASSIGN_OR_RETURN(auto client, Connect(options));
  return std::make_unique<GrpcTransport>(std::move(client));
}

}  // namespace lockstep::pubsub::grpc_client
