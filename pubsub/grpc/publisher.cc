#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <iterator>
#include <utility>
#include <vector>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "pubsub/grpc/channel/status.h"
#include "pubsub/grpc/channel/unary_calls.h"
#include "pubsub/grpc/codec/message_codec.h"
#include "pubsub/grpc/publish/publish_retries.h"
#include "pubsub/grpc/transport.h"
#include "pubsub/publish_calls.h"

namespace lockstep::pubsub::grpc_client {
namespace {

using google::pubsub::v1::PublishResponse;

// PublishCalls over the Publish RPC, requests spread over the channels.
class GrpcPublisher : public PublishCalls {
 public:
  GrpcPublisher(const PublisherOptions& options, std::shared_ptr<Client> client)
      : PublishCalls(
            options, Keys::kMixed,
            [this](std::shared_ptr<const Request> request, Answer answer) {
              retries_.Send(std::move(request), std::move(answer));
            },
            [this](std::function<void()> job) { client_->timers.Now(std::move(job)); }),
        client_(std::move(client)),
        retries_([this](const Request& request, Millis timeout,
                        PublishRetries::Done done) { SendOnce(request, timeout, std::move(done)); },
                 client_->timers) {
    for (const auto& channel : client_->channels) stubs_.push_back(std::make_unique<Stub>(channel));
  }

  ~GrpcPublisher() override {
    Close();
    retries_.Close();
    rpcs_.Close();
  }

 private:
  // Takes requests that are encoded already.
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, PublishResponse>;

  void SendOnce(const Request& request, Millis timeout, PublishRetries::Done done) {
    Stub& stub = *stubs_[next_stub_++ % stubs_.size()];
    rpcs_.Run<PublishResponse>(
        [&stub](auto* context, auto* sent, auto* response, auto callback) {
          stub.UnaryCall(context, "/google.pubsub.v1.Publisher/Publish", {}, sent, response,
                         std::move(callback));
        },
        std::make_shared<grpc::ByteBuffer>(EncodePublishRequest(request.topic, request.messages)),
        timeout,
        [this, done = std::move(done)](const grpc::Status& status, PublishResponse& response) {
          auto& ids = *response.mutable_message_ids();
          done(FromGrpc(status, client_->address),
               {std::make_move_iterator(ids.begin()), std::make_move_iterator(ids.end())});
        });
  }

  const std::shared_ptr<Client> client_;
  std::vector<std::unique_ptr<Stub>> stubs_;
  std::atomic<size_t> next_stub_ = 0;
  PublishRetries retries_;
  UnaryCalls rpcs_;  // the last: they are waited for before the others go
};

}  // namespace

std::unique_ptr<Publisher> MakePublisher(const PublisherOptions& options,
                                         std::shared_ptr<Client> client) {
  return std::make_unique<GrpcPublisher>(options, std::move(client));
}

}  // namespace lockstep::pubsub::grpc_client
