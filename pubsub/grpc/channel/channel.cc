#include "pubsub/grpc/channel/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>

#include "platform/status.h"
#include "pubsub/grpc/channel/callback_threads.h"

namespace lockstep::pubsub::grpc_client {
namespace {

constexpr char kGlobalEndpoint[] = "pubsub.googleapis.com:443";

grpc::ChannelArguments Arguments(bool emulator) {
  grpc::ChannelArguments arguments;
  // A response may hold more than gRPC's 4 MB: messages alone may have 10.
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // Channels to one address would share a connection otherwise.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Come back soon: our own backoff is the one that spares the server. (The least backoff is
  // also the time that a connection may take.)
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, emulator ? 1'000 : 10'000);
  if (!emulator) {
    // A dead path would otherwise show after many minutes only.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  }
  arguments.SetUserAgentPrefix("lockstep");
  return arguments;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Client>> Connect(const TransportOptions& options) {
  const bool emulator = !options.emulator_host.empty();
  KeepCallbackThreads();
  auto client = std::make_shared<Client>();
  if (emulator) {
    client->address = options.emulator_host;
    client->credentials = grpc::InsecureChannelCredentials();
  } else {
    client->address = options.endpoint.empty() ? kGlobalEndpoint : options.endpoint;
    client->credentials = grpc::GoogleDefaultCredentials();
  }
  if (!emulator && client->address.find(':') == std::string::npos) client->address += ":443";
  if (client->credentials == nullptr) {
    return FailedPrecondition(
        "no application default credentials for {}: set GOOGLE_APPLICATION_CREDENTIALS or run "
        "`gcloud auth application-default login`; for an emulator set PUBSUB_EMULATOR_HOST",
        client->address);
  }
  for (int i = 0; i < std::max(1, options.channels); ++i) {
    client->channels.push_back(
        grpc::CreateCustomChannel(client->address, client->credentials, Arguments(emulator)));
  }
  return client;
}

}  // namespace lockstep::pubsub::grpc_client
