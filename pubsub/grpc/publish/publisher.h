#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "pubsub/grpc/channel/channel.h"
#include "pubsub/grpc/channel/unary_calls.h"
#include "pubsub/grpc/publish/publish_queue.h"
#include "pubsub/publisher.h"

namespace lockstep::pubsub::grpc_client {

// The port's Publisher: a PublishQueue over the Publish RPC, requests spread over the channels.
class GrpcPublisher : public Publisher, private PublishRpc {
 public:
  GrpcPublisher(const PublisherOptions& options, std::shared_ptr<Client> client);
  ~GrpcPublisher() override;

  void Publish(const std::string& topic, std::vector<Message> messages,
               Publisher::Done done) override;
  void SetMaxRequests(int requests) override { queue_.SetMaxRequests(requests); }

 private:
  // Takes requests that are encoded already.
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, google::pubsub::v1::PublishResponse>;

  void Send(const std::string& topic, const std::vector<Message>& messages, Millis timeout,
            PublishRpc::Done done) override;

  const std::shared_ptr<Client> client_;
  std::vector<std::unique_ptr<Stub>> stubs_;
  std::atomic<size_t> next_stub_ = 0;
  PublishQueue queue_;
  UnaryCalls calls_;  // after the queue: it is waited for before the queue goes
};

}  // namespace lockstep::pubsub::grpc_client
