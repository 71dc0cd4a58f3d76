#include "pubsub/grpc/publish/publisher.h"

#include <utility>

#include "pubsub/grpc/channel/status.h"
#include "pubsub/grpc/codec/message_codec.h"

namespace lockstep::pubsub::grpc_client {

using google::pubsub::v1::PublishResponse;

GrpcPublisher::GrpcPublisher(const PublisherOptions& options, std::shared_ptr<Client> client)
    : client_(std::move(client)),
      retries_([this](const PublishCalls::Request& request, Millis timeout,
                      PublishRetries::Done done) { Send(request, timeout, std::move(done)); },
               client_->timers),
      publishes_(
          options, PublishCalls::Keys::kMixed,
          [this](std::shared_ptr<const PublishCalls::Request> request,
                 PublishCalls::Answer answer) {
            retries_.Send(std::move(request), std::move(answer));
          },
          [this](std::function<void()> job) { client_->timers.Now(std::move(job)); }) {
  for (const auto& channel : client_->channels) stubs_.push_back(std::make_unique<Stub>(channel));
}

GrpcPublisher::~GrpcPublisher() {
  publishes_.Close();
  retries_.Close();
  rpcs_.CancelAll();
  rpcs_.Wait();
}

void GrpcPublisher::Send(const PublishCalls::Request& request, Millis timeout,
                         PublishRetries::Done done) {
  Stub& stub = *stubs_[next_stub_++ % stubs_.size()];
  rpcs_.Run<PublishResponse>(
      [&stub](auto* context, auto* sent, auto* response, auto callback) {
        stub.UnaryCall(context, "/google.pubsub.v1.Publisher/Publish", {}, sent, response,
                       std::move(callback));
      },
      std::make_shared<grpc::ByteBuffer>(EncodePublishRequest(request.topic, request.messages)),
      timeout,
      [this, done = std::move(done)](const grpc::Status& status, PublishResponse& response) {
        std::vector<std::string> ids;
        ids.reserve(static_cast<size_t>(response.message_ids_size()));
        for (std::string& id : *response.mutable_message_ids()) ids.push_back(std::move(id));
        done(FromGrpc(status, client_->address), std::move(ids));
      });
}

}  // namespace lockstep::pubsub::grpc_client
