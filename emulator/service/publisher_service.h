#pragma once

#include "emulator/core/broker.h"
#include "emulator/faults/faults.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"

namespace lockstep::emulator {

// google.pubsub.v1.Publisher over the Broker. gRPC's threads.
class PublisherService : public google::pubsub::v1::Publisher::CallbackService {
 public:
  PublisherService(Broker* broker, Faults* faults) : broker_(broker), faults_(faults) {}

 private:
  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* CreateTopic(Context* context, const google::pubsub::v1::Topic* request,
                       google::pubsub::v1::Topic* response) override;
  Reactor* UpdateTopic(Context* context, const google::pubsub::v1::UpdateTopicRequest* request,
                       google::pubsub::v1::Topic* response) override;
  Reactor* Publish(Context* context, const google::pubsub::v1::PublishRequest* request,
                   google::pubsub::v1::PublishResponse* response) override;
  Reactor* GetTopic(Context* context, const google::pubsub::v1::GetTopicRequest* request,
                    google::pubsub::v1::Topic* response) override;
  Reactor* ListTopics(Context* context, const google::pubsub::v1::ListTopicsRequest* request,
                      google::pubsub::v1::ListTopicsResponse* response) override;
  Reactor* ListTopicSubscriptions(
      Context* context, const google::pubsub::v1::ListTopicSubscriptionsRequest* request,
      google::pubsub::v1::ListTopicSubscriptionsResponse* response) override;
  Reactor* ListTopicSnapshots(Context* context,
                              const google::pubsub::v1::ListTopicSnapshotsRequest* request,
                              google::pubsub::v1::ListTopicSnapshotsResponse* response) override;
  Reactor* DeleteTopic(Context* context, const google::pubsub::v1::DeleteTopicRequest* request,
                       google::protobuf::Empty* response) override;
  Reactor* DetachSubscription(Context* context,
                              const google::pubsub::v1::DetachSubscriptionRequest* request,
                              google::pubsub::v1::DetachSubscriptionResponse* response) override;

  Broker* const broker_;
  Faults* const faults_;
};

}  // namespace lockstep::emulator
