#pragma once

#include <memory>

#include "pubsub/grpc/channel/channel.h"
#include "pubsub/transport.h"

namespace lockstep::pubsub::grpc_client {

// The default transport: our own client on gRPC's callback API.
std::unique_ptr<Publisher> MakePublisher(const PublisherOptions& options,
                                         std::shared_ptr<Client> client);
std::unique_ptr<Receiver> MakeReceiver(const ReceiverOptions& options, DeliverySink& sink,
                                       std::shared_ptr<Client> client);
std::unique_ptr<Admin> MakeAdmin(std::shared_ptr<Client> client);

}  // namespace lockstep::pubsub::grpc_client
