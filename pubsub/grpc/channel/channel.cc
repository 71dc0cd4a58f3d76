#include "pubsub/grpc/channel/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <future>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "platform/status.h"

namespace lockstep::pubsub::grpc_client {
namespace {

constexpr char kGlobalEndpoint[] = "pubsub.googleapis.com:443";

// gRPC 1.51 ends its callback threads with the last channel of the process, and now and then aborts
// in doing so ("ref_counted.h: assertion failed: prior > 0", about one in a hundred times). After
// this call they stay until the process ends: a channel that leads nowhere (it has no credentials)
// is never destroyed. Its first call, which fails at once, is what makes it hold the threads.
void KeepCallbackThreads() {
  static const auto* const keeper = [] {
    auto* channel = new std::shared_ptr<grpc::Channel>(
        grpc::CreateCustomChannel("nowhere", nullptr, grpc::ChannelArguments()));
    google::pubsub::v1::Publisher::Stub stub(*channel);
    grpc::ClientContext context;
    const google::pubsub::v1::GetTopicRequest request;
    google::pubsub::v1::Topic response;
    std::promise<void> failed;
    stub.async()->GetTopic(&context, &request, &response,
                           [&](const grpc::Status&) { failed.set_value(); });
    failed.get_future().wait();
    return channel;
  }();
  static_cast<void>(keeper);
}

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
