#include <utility>

#include "emulator/service/services.h"
#include "emulator/service/unary_call.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

namespace pb = google::pubsub::v1;
using Reactor = grpc::ServerUnaryReactor;
using Context = grpc::CallbackServerContext;

class PublisherService : public pb::Publisher::CallbackService {
 public:
  PublisherService(Broker* broker, Faults* faults) : broker_(broker), faults_(faults) {}

 private:
  Reactor* CreateTopic(Context* context, const pb::Topic* request, pb::Topic* response) override {
    return Answer(context, faults_, "CreateTopic", *request,
                  [=, this] { return Put(broker_->CreateTopic(*request), response); });
  }

  Reactor* UpdateTopic(Context* context, const pb::UpdateTopicRequest* request,
                       pb::Topic* response) override {
    return Answer(context, faults_, "UpdateTopic", *request,
                  [=, this] { return Put(broker_->UpdateTopic(*request), response); });
  }

  Reactor* Publish(Context* context, const pb::PublishRequest* request,
                   pb::PublishResponse* response) override {
    return Answer(context, faults_, "Publish", [=, this]() -> absl::Status {
      ASSIGN_OR_RETURN(auto ids, broker_->Publish(*request));
      response->mutable_message_ids()->Reserve(static_cast<int>(ids.size()));
      for (auto& id : ids) response->add_message_ids(std::move(id));
      return absl::OkStatus();
    });
  }

  Reactor* GetTopic(Context* context, const pb::GetTopicRequest* request,
                    pb::Topic* response) override {
    return Answer(context, faults_, "GetTopic", *request,
                  [=, this] { return Put(broker_->GetTopic(request->topic()), response); });
  }

  Reactor* ListTopics(Context* context, const pb::ListTopicsRequest* request,
                      pb::ListTopicsResponse* response) override {
    return Answer(context, faults_, "ListTopics", *request, [=, this] {
      return PutPage(
          broker_->ListTopics(request->project(), {request->page_size(), request->page_token()}),
          response->mutable_topics(), response);
    });
  }

  Reactor* ListTopicSubscriptions(Context* context,
                                  const pb::ListTopicSubscriptionsRequest* request,
                                  pb::ListTopicSubscriptionsResponse* response) override {
    return Answer(context, faults_, "ListTopicSubscriptions", *request, [=, this] {
      return PutPage(broker_->ListTopicSubscriptions(request->topic(),
                                                     {request->page_size(), request->page_token()}),
                     response->mutable_subscriptions(), response);
    });
  }

  Reactor* ListTopicSnapshots(Context* context, const pb::ListTopicSnapshotsRequest* request,
                              pb::ListTopicSnapshotsResponse* response) override {
    return Answer(context, faults_, "ListTopicSnapshots", *request, [=, this] {
      return PutPage(broker_->ListTopicSnapshots(request->topic(),
                                                 {request->page_size(), request->page_token()}),
                     response->mutable_snapshots(), response);
    });
  }

  Reactor* DeleteTopic(Context* context, const pb::DeleteTopicRequest* request,
                       google::protobuf::Empty*) override {
    return Answer(context, faults_, "DeleteTopic", *request,
                  [=, this] { return broker_->DeleteTopic(request->topic()); });
  }

  Reactor* DetachSubscription(Context* context, const pb::DetachSubscriptionRequest* request,
                              pb::DetachSubscriptionResponse*) override {
    return Answer(context, faults_, "DetachSubscription", *request,
                  [=, this] { return broker_->DetachSubscription(request->subscription()); });
  }

  Broker* const broker_;
  Faults* const faults_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewPublisherService(Broker* broker, Faults* faults) {
  return std::make_unique<PublisherService>(broker, faults);
}

}  // namespace lockstep::emulator
