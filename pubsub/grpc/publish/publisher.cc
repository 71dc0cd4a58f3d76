#include "pubsub/grpc/publish/publisher.h"

#include <utility>

#include "pubsub/grpc/channel/status.h"
#include "pubsub/grpc/codec/message_codec.h"

namespace lockstep::pubsub::grpc_client {

using google::pubsub::v1::PublishResponse;

GrpcPublisher::GrpcPublisher(const PublisherOptions& options, std::shared_ptr<Client> client)
    : client_(std::move(client)), queue_(options, *this, client_->timers) {
  for (const auto& channel : client_->channels) stubs_.push_back(std::make_unique<Stub>(channel));
}

GrpcPublisher::~GrpcPublisher() {
  queue_.Close();
  calls_.CancelAll();
  calls_.Wait();
}

void GrpcPublisher::Publish(const std::string& topic, std::vector<Message> messages,
                            Publisher::Done done) {
  queue_.Publish(topic, std::move(messages), std::move(done));
}

void GrpcPublisher::Send(const std::string& topic, const std::vector<Message>& messages,
                         Millis timeout, PublishRpc::Done done) {
  Stub& stub = *stubs_[next_stub_++ % stubs_.size()];
  calls_.Run<PublishResponse>(
      [&stub](auto* context, auto* sent, auto* response, auto callback) {
        stub.UnaryCall(context, "/google.pubsub.v1.Publisher/Publish", {}, sent, response,
                       std::move(callback));
      },
      std::make_shared<grpc::ByteBuffer>(EncodePublishRequest(topic, messages)), timeout,
      [this, done = std::move(done)](const grpc::Status& status, PublishResponse& response) {
        std::vector<std::string> ids;
        ids.reserve(static_cast<size_t>(response.message_ids_size()));
        for (std::string& id : *response.mutable_message_ids()) ids.push_back(std::move(id));
        done(FromGrpc(status, client_->address), std::move(ids));
      });
}

}  // namespace lockstep::pubsub::grpc_client
