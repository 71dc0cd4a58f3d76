#pragma once

#include "emulator/core/broker.h"
#include "emulator/core/timekeeper.h"
#include "emulator/faults/ack_path.h"
#include "emulator/faults/faults.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"

namespace lockstep::emulator {

namespace subscriber_internal {

// Every call by the callback API; StreamingPull in raw bytes, for speed.
using S = google::pubsub::v1::Subscriber;
using Admin = S::WithCallbackMethod_CreateSubscription<
    S::WithCallbackMethod_GetSubscription<S::WithCallbackMethod_UpdateSubscription<
        S::WithCallbackMethod_ListSubscriptions<S::WithCallbackMethod_DeleteSubscription<
            S::WithCallbackMethod_ModifyPushConfig<S::Service>>>>>>;
using Snapshots = S::WithCallbackMethod_GetSnapshot<S::WithCallbackMethod_ListSnapshots<
    S::WithCallbackMethod_CreateSnapshot<S::WithCallbackMethod_UpdateSnapshot<
        S::WithCallbackMethod_DeleteSnapshot<S::WithCallbackMethod_Seek<Admin>>>>>>;
using Base = S::WithCallbackMethod_ModifyAckDeadline<S::WithCallbackMethod_Acknowledge<
    S::WithCallbackMethod_Pull<S::WithRawCallbackMethod_StreamingPull<Snapshots>>>>;

}  // namespace subscriber_internal

// google.pubsub.v1.Subscriber over the Broker. gRPC's threads.
class SubscriberService : public subscriber_internal::Base {
 public:
  SubscriberService(Broker* broker, Faults* faults, Timekeeper* timekeeper)
      : broker_(broker), faults_(faults), timekeeper_(timekeeper), acks_(faults, timekeeper) {}

 private:
  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* CreateSubscription(Context* context, const google::pubsub::v1::Subscription* request,
                              google::pubsub::v1::Subscription* response) override;
  Reactor* GetSubscription(Context* context,
                           const google::pubsub::v1::GetSubscriptionRequest* request,
                           google::pubsub::v1::Subscription* response) override;
  Reactor* UpdateSubscription(Context* context,
                              const google::pubsub::v1::UpdateSubscriptionRequest* request,
                              google::pubsub::v1::Subscription* response) override;
  Reactor* ListSubscriptions(Context* context,
                             const google::pubsub::v1::ListSubscriptionsRequest* request,
                             google::pubsub::v1::ListSubscriptionsResponse* response) override;
  Reactor* DeleteSubscription(Context* context,
                              const google::pubsub::v1::DeleteSubscriptionRequest* request,
                              google::protobuf::Empty* response) override;
  Reactor* ModifyPushConfig(Context* context,
                            const google::pubsub::v1::ModifyPushConfigRequest* request,
                            google::protobuf::Empty* response) override;

  Reactor* ModifyAckDeadline(Context* context,
                             const google::pubsub::v1::ModifyAckDeadlineRequest* request,
                             google::protobuf::Empty* response) override;
  Reactor* Acknowledge(Context* context, const google::pubsub::v1::AcknowledgeRequest* request,
                       google::protobuf::Empty* response) override;
  Reactor* Pull(Context* context, const google::pubsub::v1::PullRequest* request,
                google::pubsub::v1::PullResponse* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamingPull(
      Context* context) override;

  Reactor* GetSnapshot(Context* context, const google::pubsub::v1::GetSnapshotRequest* request,
                       google::pubsub::v1::Snapshot* response) override;
  Reactor* ListSnapshots(Context* context, const google::pubsub::v1::ListSnapshotsRequest* request,
                         google::pubsub::v1::ListSnapshotsResponse* response) override;
  Reactor* CreateSnapshot(Context* context,
                          const google::pubsub::v1::CreateSnapshotRequest* request,
                          google::pubsub::v1::Snapshot* response) override;
  Reactor* UpdateSnapshot(Context* context,
                          const google::pubsub::v1::UpdateSnapshotRequest* request,
                          google::pubsub::v1::Snapshot* response) override;
  Reactor* DeleteSnapshot(Context* context,
                          const google::pubsub::v1::DeleteSnapshotRequest* request,
                          google::protobuf::Empty* response) override;
  Reactor* Seek(Context* context, const google::pubsub::v1::SeekRequest* request,
                google::pubsub::v1::SeekResponse* response) override;

  Broker* const broker_;
  Faults* const faults_;
  Timekeeper* const timekeeper_;
  AckPath acks_;
};

}  // namespace lockstep::emulator
