#include <utility>

#include "emulator/faults/ack_path.h"
#include "emulator/service/pull.h"
#include "emulator/service/services.h"
#include "emulator/service/streaming_pull.h"
#include "emulator/service/unary_call.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

namespace pb = google::pubsub::v1;
using Reactor = grpc::ServerUnaryReactor;
using Context = grpc::CallbackServerContext;

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

// Every call by the callback API; StreamingPull in raw bytes, for speed.
using S = pb::Subscriber;
using Admin = S::WithCallbackMethod_CreateSubscription<
    S::WithCallbackMethod_GetSubscription<S::WithCallbackMethod_UpdateSubscription<
        S::WithCallbackMethod_ListSubscriptions<S::WithCallbackMethod_DeleteSubscription<
            S::WithCallbackMethod_ModifyPushConfig<S::Service>>>>>>;
using Snapshots = S::WithCallbackMethod_GetSnapshot<S::WithCallbackMethod_ListSnapshots<
    S::WithCallbackMethod_CreateSnapshot<S::WithCallbackMethod_UpdateSnapshot<
        S::WithCallbackMethod_DeleteSnapshot<S::WithCallbackMethod_Seek<Admin>>>>>>;
using Base = S::WithCallbackMethod_ModifyAckDeadline<S::WithCallbackMethod_Acknowledge<
    S::WithCallbackMethod_Pull<S::WithRawCallbackMethod_StreamingPull<Snapshots>>>>;

class SubscriberService : public Base {
 public:
  SubscriberService(Broker* broker, Faults* faults, Timekeeper* timekeeper)
      : broker_(broker), faults_(faults), timekeeper_(timekeeper), acks_(faults, timekeeper) {}

 private:
  Reactor* CreateSubscription(Context* context, const pb::Subscription* request,
                              pb::Subscription* response) override {
    return Answer(context, faults_, "CreateSubscription", *request,
                  [=, this] { return Put(broker_->CreateSubscription(*request), response); });
  }

  Reactor* GetSubscription(Context* context, const pb::GetSubscriptionRequest* request,
                           pb::Subscription* response) override {
    return Answer(context, faults_, "GetSubscription", *request, [=, this] {
      return Put(broker_->GetSubscription(request->subscription()), response);
    });
  }

  Reactor* UpdateSubscription(Context* context, const pb::UpdateSubscriptionRequest* request,
                              pb::Subscription* response) override {
    return Answer(context, faults_, "UpdateSubscription", *request,
                  [=, this] { return Put(broker_->UpdateSubscription(*request), response); });
  }

  Reactor* ListSubscriptions(Context* context, const pb::ListSubscriptionsRequest* request,
                             pb::ListSubscriptionsResponse* response) override {
    return Answer(context, faults_, "ListSubscriptions", *request, [=, this] {
      return PutPage(broker_->ListSubscriptions(request->project(),
                                                {request->page_size(), request->page_token()}),
                     response->mutable_subscriptions(), response);
    });
  }

  Reactor* DeleteSubscription(Context* context, const pb::DeleteSubscriptionRequest* request,
                              google::protobuf::Empty*) override {
    return Answer(context, faults_, "DeleteSubscription", *request,
                  [=, this] { return broker_->DeleteSubscription(request->subscription()); });
  }

  Reactor* ModifyPushConfig(Context* context, const pb::ModifyPushConfigRequest* request,
                            google::protobuf::Empty*) override {
    return Answer(context, faults_, "ModifyPushConfig", *request, [=, this]() -> absl::Status {
      RETURN_IF_ERROR(broker_->FindSubscription(request->subscription()).status());
      if (request->push_config().ByteSizeLong() == 0) return absl::OkStatus();  // pull, as it is
      return absl::UnimplementedError("Push delivery is not implemented by this emulator.");
    });
  }

  Reactor* ModifyAckDeadline(Context* context, const pb::ModifyAckDeadlineRequest* request,
                             google::protobuf::Empty*) override {
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

  Reactor* Acknowledge(Context* context, const pb::AcknowledgeRequest* request,
                       google::protobuf::Empty*) override {
    return Answer(context, faults_, "Acknowledge", *request, [=, this]() -> grpc::Status {
      if (absl::Status checked = CheckAckRequest(*request); !checked.ok()) return ToGrpc(checked);
      const auto subscription = broker_->FindSubscription(request->subscription());
      if (!subscription.ok()) return ToGrpc(subscription.status());
      const auto answer = acks_.Acknowledge(*subscription, request->ack_ids());
      return answer.ok() ? ToGrpc(*answer) : ToGrpc(answer.status());
    });
  }

  Reactor* Pull(Context*, const pb::PullRequest* request, pb::PullResponse* response) override {
    return emulator::Pull::Begin(broker_, faults_, timekeeper_, request, response);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamingPull(Context*) override {
    return emulator::StreamingPull::Begin(broker_, faults_, &acks_);
  }

  Reactor* GetSnapshot(Context* context, const pb::GetSnapshotRequest* request,
                       pb::Snapshot* response) override {
    return Answer(context, faults_, "GetSnapshot", *request,
                  [=, this] { return Put(broker_->GetSnapshot(request->snapshot()), response); });
  }

  Reactor* ListSnapshots(Context* context, const pb::ListSnapshotsRequest* request,
                         pb::ListSnapshotsResponse* response) override {
    return Answer(context, faults_, "ListSnapshots", *request, [=, this] {
      return PutPage(
          broker_->ListSnapshots(request->project(), {request->page_size(), request->page_token()}),
          response->mutable_snapshots(), response);
    });
  }

  Reactor* CreateSnapshot(Context* context, const pb::CreateSnapshotRequest* request,
                          pb::Snapshot* response) override {
    return Answer(context, faults_, "CreateSnapshot", *request,
                  [=, this] { return Put(broker_->CreateSnapshot(*request), response); });
  }

  Reactor* UpdateSnapshot(Context* context, const pb::UpdateSnapshotRequest* request,
                          pb::Snapshot* response) override {
    return Answer(context, faults_, "UpdateSnapshot", *request,
                  [=, this] { return Put(broker_->UpdateSnapshot(*request), response); });
  }

  Reactor* DeleteSnapshot(Context* context, const pb::DeleteSnapshotRequest* request,
                          google::protobuf::Empty*) override {
    return Answer(context, faults_, "DeleteSnapshot", *request,
                  [=, this] { return broker_->DeleteSnapshot(request->snapshot()); });
  }

  Reactor* Seek(Context* context, const pb::SeekRequest* request, pb::SeekResponse*) override {
    return Answer(context, faults_, "Seek", *request,
                  [=, this] { return broker_->Seek(*request); });
  }

  Broker* const broker_;
  Faults* const faults_;
  Timekeeper* const timekeeper_;
  AckPath acks_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewSubscriberService(Broker* broker, Faults* faults,
                                                    Timekeeper* timekeeper) {
  return std::make_unique<SubscriberService>(broker, faults, timekeeper);
}

}  // namespace lockstep::emulator
