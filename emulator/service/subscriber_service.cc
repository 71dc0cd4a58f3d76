#include "emulator/service/subscriber_service.h"

#include <utility>

#include "emulator/service/pull.h"
#include "emulator/service/streaming_pull.h"
#include "emulator/service/unary_call.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

namespace pb = google::pubsub::v1;

constexpr size_t kMaxAckRequestBytes = 512 << 10;

template <typename Request>
absl::Status CheckAckRequest(const Request& request) {
  if (request.ack_ids().empty()) return InvalidArgument("The request holds no ack_ids.");
  if (const size_t size = request.ByteSizeLong(); size > kMaxAckRequestBytes) {
    return InvalidArgument("Request payload size exceeds the limit: {} of {} bytes.", size,
                           kMaxAckRequestBytes);
  }
  return absl::OkStatus();
}

}  // namespace

using Reactor = grpc::ServerUnaryReactor;

Reactor* SubscriberService::CreateSubscription(Context* context, const pb::Subscription* request,
                                               pb::Subscription* response) {
  return Answer(context, faults_, "CreateSubscription", *request,
                [=, this] { return Put(broker_->CreateSubscription(*request), response); });
}

Reactor* SubscriberService::GetSubscription(Context* context,
                                            const pb::GetSubscriptionRequest* request,
                                            pb::Subscription* response) {
  return Answer(context, faults_, "GetSubscription", *request, [=, this] {
    return Put(broker_->GetSubscription(request->subscription()), response);
  });
}

Reactor* SubscriberService::UpdateSubscription(Context* context,
                                               const pb::UpdateSubscriptionRequest* request,
                                               pb::Subscription* response) {
  return Answer(context, faults_, "UpdateSubscription", *request,
                [=, this] { return Put(broker_->UpdateSubscription(*request), response); });
}

Reactor* SubscriberService::ListSubscriptions(Context* context,
                                              const pb::ListSubscriptionsRequest* request,
                                              pb::ListSubscriptionsResponse* response) {
  return Answer(context, faults_, "ListSubscriptions", *request, [=, this]() -> absl::Status {
    ASSIGN_OR_RETURN(auto page,
                     broker_->ListSubscriptions(request->project(),
                                                {request->page_size(), request->page_token()}));
    for (auto& each : page.items) *response->add_subscriptions() = std::move(each);
    response->set_next_page_token(page.next_token);
    return absl::OkStatus();
  });
}

Reactor* SubscriberService::DeleteSubscription(Context* context,
                                               const pb::DeleteSubscriptionRequest* request,
                                               google::protobuf::Empty*) {
  return Answer(context, faults_, "DeleteSubscription", *request,
                [=, this] { return broker_->DeleteSubscription(request->subscription()); });
}

Reactor* SubscriberService::ModifyPushConfig(Context* context,
                                             const pb::ModifyPushConfigRequest* request,
                                             google::protobuf::Empty*) {
  return Answer(context, faults_, "ModifyPushConfig", *request, [=, this]() -> absl::Status {
    RETURN_IF_ERROR(broker_->FindSubscription(request->subscription()).status());
    if (request->push_config().ByteSizeLong() == 0) return absl::OkStatus();  // pull, as it is
    return absl::UnimplementedError("Push delivery is not implemented by this emulator.");
  });
}

Reactor* SubscriberService::ModifyAckDeadline(Context* context,
                                              const pb::ModifyAckDeadlineRequest* request,
                                              google::protobuf::Empty*) {
  return Answer(context, faults_, "ModifyAckDeadline", *request, [=, this]() -> grpc::Status {
    const int seconds = request->ack_deadline_seconds();
    absl::Status checked = CheckAckRequest(*request);
    if (checked.ok() && (seconds < 0 || seconds > 600)) {
      checked = InvalidArgument("Invalid ack deadline: {} s is not within 0 and 600.", seconds);
    }
    if (!checked.ok()) return ToGrpc(checked);
    const auto subscription = broker_->FindSubscription(request->subscription());
    if (!subscription.ok()) return ToGrpc(subscription.status());
    auto report = (*subscription)->ModifyAckDeadline(request->ack_ids(), {seconds});
    if (!report.ok()) return ToGrpc(report.status());
    return ToGrpc(AckAnswer{*std::move(report), {}});
  });
}

Reactor* SubscriberService::Acknowledge(Context* context, const pb::AcknowledgeRequest* request,
                                        google::protobuf::Empty*) {
  return Answer(context, faults_, "Acknowledge", *request, [=, this]() -> grpc::Status {
    if (absl::Status checked = CheckAckRequest(*request); !checked.ok()) return ToGrpc(checked);
    const auto subscription = broker_->FindSubscription(request->subscription());
    if (!subscription.ok()) return ToGrpc(subscription.status());
    const auto answer = acks_.Acknowledge(*subscription, request->ack_ids());
    return answer.ok() ? ToGrpc(*answer) : ToGrpc(answer.status());
  });
}

Reactor* SubscriberService::Pull(Context*, const pb::PullRequest* request,
                                 pb::PullResponse* response) {
  return emulator::Pull::Begin(broker_, faults_, timekeeper_, request, response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* SubscriberService::StreamingPull(
    Context*) {
  return emulator::StreamingPull::Begin(broker_, faults_, &acks_);
}

Reactor* SubscriberService::GetSnapshot(Context* context, const pb::GetSnapshotRequest* request,
                                        pb::Snapshot* response) {
  return Answer(context, faults_, "GetSnapshot", *request,
                [=, this] { return Put(broker_->GetSnapshot(request->snapshot()), response); });
}

Reactor* SubscriberService::ListSnapshots(Context* context, const pb::ListSnapshotsRequest* request,
                                          pb::ListSnapshotsResponse* response) {
  return Answer(context, faults_, "ListSnapshots", *request, [=, this]() -> absl::Status {
    ASSIGN_OR_RETURN(
        auto page,
        broker_->ListSnapshots(request->project(), {request->page_size(), request->page_token()}));
    for (auto& each : page.items) *response->add_snapshots() = std::move(each);
    response->set_next_page_token(page.next_token);
    return absl::OkStatus();
  });
}

Reactor* SubscriberService::CreateSnapshot(Context* context,
                                           const pb::CreateSnapshotRequest* request,
                                           pb::Snapshot* response) {
  return Answer(context, faults_, "CreateSnapshot", *request,
                [=, this] { return Put(broker_->CreateSnapshot(*request), response); });
}

Reactor* SubscriberService::UpdateSnapshot(Context* context,
                                           const pb::UpdateSnapshotRequest* request,
                                           pb::Snapshot* response) {
  return Answer(context, faults_, "UpdateSnapshot", *request,
                [=, this] { return Put(broker_->UpdateSnapshot(*request), response); });
}

Reactor* SubscriberService::DeleteSnapshot(Context* context,
                                           const pb::DeleteSnapshotRequest* request,
                                           google::protobuf::Empty*) {
  return Answer(context, faults_, "DeleteSnapshot", *request,
                [=, this] { return broker_->DeleteSnapshot(request->snapshot()); });
}

Reactor* SubscriberService::Seek(Context* context, const pb::SeekRequest* request,
                                 pb::SeekResponse*) {
  return Answer(context, faults_, "Seek", *request, [=, this] { return broker_->Seek(*request); });
}

}  // namespace lockstep::emulator
