#include "pubsub/grpc/receive/ack_rpc.h"

#include <utility>

#include "pubsub/grpc/channel/status.h"
#include "pubsub/message.h"

namespace lockstep::pubsub::grpc_client {

using google::protobuf::Empty;
using google::pubsub::v1::AcknowledgeRequest;
using google::pubsub::v1::ModifyAckDeadlineRequest;

namespace {

template <typename Request>
std::shared_ptr<Request> MakeRequest(const std::string& subscription,
                                     std::vector<std::string> ids) {
  auto request = std::make_shared<Request>();
  request->set_subscription(subscription);
  request->mutable_ack_ids()->Reserve(static_cast<int>(ids.size()));
  for (std::string& id : ids) request->add_ack_ids(std::move(id));
  return request;
}

template <typename Request>
AckAnswer MakeAnswer(const grpc::Status& status, const std::string& address, Request& request) {
  AckAnswer answer{FromGrpc(status, address), {}, AckFailures(status)};
  answer.ids.reserve(static_cast<size_t>(request.ack_ids_size()));
  for (std::string& id : *request.mutable_ack_ids()) answer.ids.push_back(std::move(id));
  return answer;
}

}  // namespace

bool AckRequestSize::Add(const std::string& id) {
  const auto size = static_cast<int64_t>(id.size()) + 4;
  if (!empty_ && bytes_ + size > kMaxAckRequestBytes) return false;
  bytes_ += size;
  empty_ = false;
  return true;
}

GrpcAckRpc::GrpcAckRpc(std::shared_ptr<Client> client, std::string subscription)
    : client_(std::move(client)),
      subscription_(std::move(subscription)),
      stub_(google::pubsub::v1::Subscriber::NewStub(client_->channel(0))) {}

void GrpcAckRpc::Acknowledge(std::vector<std::string> ids, Millis timeout, Done done) {
  auto request = MakeRequest<AcknowledgeRequest>(subscription_, std::move(ids));
  calls_.Run<Empty>(
      [this](auto* context, auto* sent, auto* response, auto callback) {
        stub_->async()->Acknowledge(context, sent, response, std::move(callback));
      },
      request, timeout,
      [this, request, done = std::move(done)](const grpc::Status& status, Empty&) {
        done(MakeAnswer(status, client_->address, *request));
      });
}

void GrpcAckRpc::ModifyDeadline(std::vector<std::string> ids, int seconds, Millis timeout,
                                Done done) {
  auto request = MakeRequest<ModifyAckDeadlineRequest>(subscription_, std::move(ids));
  request->set_ack_deadline_seconds(seconds);
  calls_.Run<Empty>(
      [this](auto* context, auto* sent, auto* response, auto callback) {
        stub_->async()->ModifyAckDeadline(context, sent, response, std::move(callback));
      },
      request, timeout,
      [this, request, done = std::move(done)](const grpc::Status& status, Empty&) {
        done(MakeAnswer(status, client_->address, *request));
      });
}

void GrpcAckRpc::Close() {
  calls_.CancelAll();
  calls_.Wait();
}

}  // namespace lockstep::pubsub::grpc_client
