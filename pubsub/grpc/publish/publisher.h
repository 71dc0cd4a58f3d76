#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "pubsub/grpc/channel/channel.h"
#include "pubsub/grpc/channel/unary_calls.h"
#include "pubsub/grpc/publish/publish_retries.h"
#include "pubsub/publish_calls.h"
#include "pubsub/publisher.h"

namespace lockstep::pubsub::grpc_client {

// The port's Publisher: PublishCalls over the Publish RPC, requests spread over the channels.
class GrpcPublisher : public Publisher {
 public:
  GrpcPublisher(const PublisherOptions& options, std::shared_ptr<Client> client);
  ~GrpcPublisher() override;

  void Publish(const std::string& topic, std::vector<Message> messages, Done done) override {
    publishes_.Publish(topic, std::move(messages), std::move(done));
  }
  void SetMaxRequests(int requests) override { publishes_.SetMaxRequests(requests); }

 private:
  // Takes requests that are encoded already.
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, google::pubsub::v1::PublishResponse>;

  void Send(const PublishCalls::Request& request, Millis timeout, PublishRetries::Done done);

  const std::shared_ptr<Client> client_;
  std::vector<std::unique_ptr<Stub>> stubs_;
  std::atomic<size_t> next_stub_ = 0;
  PublishRetries retries_;
  PublishCalls publishes_;
  UnaryCalls rpcs_;  // the last: they are waited for before the others go
};

}  // namespace lockstep::pubsub::grpc_client
