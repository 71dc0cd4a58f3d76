#include "pubsub/grpc/receive/ack_rpc.h"

#include <iterator>
#include <utility>

#include "pubsub/grpc/channel/status.h"
#include "pubsub/message.h"

namespace lockstep::pubsub::grpc_client {

using google::protobuf::Empty;
using google::pubsub::v1::AcknowledgeRequest;
using google::pubsub::v1::ModifyAckDeadlineRequest;

bool AckAnswer::Refused(const std::string& id) const {
  const auto failure = failures.find(id);
  return failure != failures.end() && failure->second.starts_with("PERMANENT");
}

bool AckRequestSize::Add(const std::string& id) {
  const auto size = static_cast<int64_t>(id.size()) + 4;
  if (!empty_ && bytes_ + size > kMaxAckRequestBytes) return false;
  bytes_ += size;
  empty_ = false;
  return true;
}

std::vector<std::vector<std::string>> SplitIntoRequests(std::vector<std::string> ids) {
  std::vector<std::vector<std::string>> requests;
  AckRequestSize size;
  for (std::string& id : ids) {
    if (requests.empty() || !size.Add(id)) {
      requests.emplace_back();
      size = {};
      size.Add(id);
    }
    requests.back().push_back(std::move(id));
  }
  return requests;
}

GrpcAckRpc::GrpcAckRpc(std::shared_ptr<Client> client, std::string subscription)
    : client_(std::move(client)),
      subscription_(std::move(subscription)),
      stub_(client_->channel(0)) {}

template <typename Request, typename Start>
void GrpcAckRpc::Run(const Start& start, Request request, std::vector<std::string> ids,
                     Millis timeout, Done done) {
  request.set_subscription(subscription_);
  request.mutable_ack_ids()->Assign(std::make_move_iterator(ids.begin()),
                                    std::make_move_iterator(ids.end()));
  auto sent = std::make_shared<Request>(std::move(request));
  calls_.Run<Empty>(
      start, sent, timeout,
      [this, sent, done = std::move(done)](const grpc::Status& status, Empty&) {
        auto& sent_ids = *sent->mutable_ack_ids();
        done({FromGrpc(status, client_->address),
              {std::make_move_iterator(sent_ids.begin()), std::make_move_iterator(sent_ids.end())},
              AckFailures(status)});
      });
}

void GrpcAckRpc::Send(std::vector<std::string> ids, std::optional<int> deadline_seconds,
                      Millis timeout, Done done) {
  if (!deadline_seconds.has_value()) {
    const auto start = [this](auto* context, auto* request, auto* response, auto callback) {
      stub_.async()->Acknowledge(context, request, response, std::move(callback));
    };
    return Run(start, AcknowledgeRequest(), std::move(ids), timeout, std::move(done));
  }
  const auto start = [this](auto* context, auto* request, auto* response, auto callback) {
    stub_.async()->ModifyAckDeadline(context, request, response, std::move(callback));
  };
  ModifyAckDeadlineRequest request;
  request.set_ack_deadline_seconds(*deadline_seconds);
  Run(start, std::move(request), std::move(ids), timeout, std::move(done));
}

}  // namespace lockstep::pubsub::grpc_client
