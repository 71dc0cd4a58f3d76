#include "emulator/service/publisher_service.h"

#include <utility>

#include "emulator/service/unary_call.h"
#include "platform/status.h"

namespace lockstep::emulator {

namespace pb = google::pubsub::v1;

PublisherService::Reactor* PublisherService::CreateTopic(Context* context, const pb::Topic* request,
                                                         pb::Topic* response) {
  return Answer(context, faults_, "CreateTopic", *request,
                [=, this] { return Put(broker_->CreateTopic(*request), response); });
}

PublisherService::Reactor* PublisherService::UpdateTopic(Context* context,
                                                         const pb::UpdateTopicRequest* request,
                                                         pb::Topic* response) {
  return Answer(context, faults_, "UpdateTopic", *request,
                [=, this] { return Put(broker_->UpdateTopic(*request), response); });
}

PublisherService::Reactor* PublisherService::Publish(Context* context,
                                                     const pb::PublishRequest* request,
                                                     pb::PublishResponse* response) {
  return Answer(context, faults_, "Publish", [=, this]() -> absl::Status {
    ASSIGN_OR_RETURN(auto ids, broker_->Publish(*request));
    response->mutable_message_ids()->Reserve(static_cast<int>(ids.size()));
    for (auto& id : ids) response->add_message_ids(std::move(id));
    return absl::OkStatus();
  });
}

PublisherService::Reactor* PublisherService::GetTopic(Context* context,
                                                      const pb::GetTopicRequest* request,
                                                      pb::Topic* response) {
  return Answer(context, faults_, "GetTopic", *request,
                [=, this] { return Put(broker_->GetTopic(request->topic()), response); });
}

PublisherService::Reactor* PublisherService::ListTopics(Context* context,
                                                        const pb::ListTopicsRequest* request,
                                                        pb::ListTopicsResponse* response) {
  return Answer(context, faults_, "ListTopics", *request, [=, this]() -> absl::Status {
    ASSIGN_OR_RETURN(auto page, broker_->ListTopics(request->project(),
                                                    {request->page_size(), request->page_token()}));
    for (auto& topic : page.items) *response->add_topics() = std::move(topic);
    response->set_next_page_token(page.next_token);
    return absl::OkStatus();
  });
}

PublisherService::Reactor* PublisherService::ListTopicSubscriptions(
    Context* context, const pb::ListTopicSubscriptionsRequest* request,
    pb::ListTopicSubscriptionsResponse* response) {
  return Answer(context, faults_, "ListTopicSubscriptions", *request, [=, this]() -> absl::Status {
    ASSIGN_OR_RETURN(
        auto page, broker_->ListTopicSubscriptions(request->topic(),
                                                   {request->page_size(), request->page_token()}));
    for (auto& name : page.items) response->add_subscriptions(std::move(name));
    response->set_next_page_token(page.next_token);
    return absl::OkStatus();
  });
}

PublisherService::Reactor* PublisherService::ListTopicSnapshots(
    Context* context, const pb::ListTopicSnapshotsRequest* request,
    pb::ListTopicSnapshotsResponse* response) {
  return Answer(context, faults_, "ListTopicSnapshots", *request, [=, this]() -> absl::Status {
    ASSIGN_OR_RETURN(auto page,
                     broker_->ListTopicSnapshots(request->topic(),
                                                 {request->page_size(), request->page_token()}));
    for (auto& name : page.items) response->add_snapshots(std::move(name));
    response->set_next_page_token(page.next_token);
    return absl::OkStatus();
  });
}

PublisherService::Reactor* PublisherService::DeleteTopic(Context* context,
                                                         const pb::DeleteTopicRequest* request,
                                                         google::protobuf::Empty*) {
  return Answer(context, faults_, "DeleteTopic", *request,
                [=, this] { return broker_->DeleteTopic(request->topic()); });
}

PublisherService::Reactor* PublisherService::DetachSubscription(
    Context* context, const pb::DetachSubscriptionRequest* request,
    pb::DetachSubscriptionResponse*) {
  return Answer(context, faults_, "DetachSubscription", *request,
                [=, this] { return broker_->DetachSubscription(request->subscription()); });
}

}  // namespace lockstep::emulator
