#include "pubsub/grpc/channel/callback_threads.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <future>

#include "google/pubsub/v1/pubsub.grpc.pb.h"

namespace lockstep::pubsub::grpc_client {
namespace {

// A channel that leads nowhere (it has no credentials) and is never destroyed. Its first call,
// which fails at once, is what makes it hold the threads.
std::shared_ptr<grpc::Channel>* MakeKeeper() {
  auto* keeper = new std::shared_ptr<grpc::Channel>(
      grpc::CreateCustomChannel("nowhere", nullptr, grpc::ChannelArguments()));
  const auto stub = google::pubsub::v1::Publisher::NewStub(*keeper);
  grpc::ClientContext context;
  const google::pubsub::v1::GetTopicRequest request;
  google::pubsub::v1::Topic response;
  std::promise<void> failed;
  stub->async()->GetTopic(&context, &request, &response,
                          [&](const grpc::Status&) { failed.set_value(); });
  failed.get_future().wait();
  return keeper;
}

}  // namespace

void KeepCallbackThreads() {
  static const std::shared_ptr<grpc::Channel>* const keeper = MakeKeeper();
  static_cast<void>(keeper);
}

}  // namespace lockstep::pubsub::grpc_client
