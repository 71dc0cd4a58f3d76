#include <fmt/format.h>

#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "google/pubsub/v1/schema.grpc.pb.h"
#include "platform/status.h"
#include "pubsub/grpc/channel/status.h"
#include "pubsub/grpc/codec/resource_codec.h"
#include "pubsub/grpc/transport.h"
#include "pubsub/names.h"

namespace lockstep::pubsub::grpc_client {
namespace {

namespace v1 = google::pubsub::v1;
using PublisherStub = v1::Publisher::Stub;
using SubscriberStub = v1::Subscriber::Stub;
using SchemaStub = v1::SchemaService::Stub;

constexpr Millis kAttempt{20'000};   // one try
constexpr Millis kPatience{10'000};  // no new try after that
constexpr RetryPolicy kRetry = WithoutEnd(Millis(100), Millis(2'000));

std::string ProjectName(std::string_view project) {
  return project.starts_with("projects/") ? std::string(project)
                                          : fmt::format("projects/{}", project);
}

// Blocking calls on the caller's thread. Those that may be repeated are, for a while, when a fault
// may pass.
class GrpcAdmin : public Admin {
 public:
  explicit GrpcAdmin(std::shared_ptr<Client> client)
      : client_(std::move(client)),
        publisher_(client_->channel(0)),
        subscriber_(client_->channel(0)),
        schemas_(client_->channel(0)) {}

  absl::StatusOr<Topic> CreateTopic(const Topic& topic) override {
    return Ask(Repeat::kNever, publisher_, &PublisherStub::CreateTopic, ToProto(topic));
  }

  absl::StatusOr<Topic> GetTopic(const std::string& name) override {
    v1::GetTopicRequest request;
    request.set_topic(name);
    return Ask(Repeat::kIfMayPass, publisher_, &PublisherStub::GetTopic, request);
  }

  absl::StatusOr<Topic> UpdateTopic(const Topic& topic,
                                    const std::vector<std::string>& paths) override {
    v1::UpdateTopicRequest request;
    *request.mutable_topic() = ToProto(topic);
    for (const std::string& path : paths) request.mutable_update_mask()->add_paths(path);
    return Ask(Repeat::kIfMayPass, publisher_, &PublisherStub::UpdateTopic, request);
  }

  absl::StatusOr<std::vector<Topic>> ListTopics(const std::string& project) override {
    return List(project, publisher_, &PublisherStub::ListTopics, &v1::ListTopicsResponse::topics);
  }

  absl::Status DeleteTopic(const std::string& name) override {
    v1::DeleteTopicRequest request;
    request.set_topic(name);
    return Call(Repeat::kDeletion, publisher_, &PublisherStub::DeleteTopic, request).status();
  }

  absl::StatusOr<Subscription> CreateSubscription(const Subscription& subscription) override {
    return Ask(Repeat::kNever, subscriber_, &SubscriberStub::CreateSubscription,
               ToProto(subscription));
  }

  absl::StatusOr<Subscription> GetSubscription(const std::string& name) override {
    v1::GetSubscriptionRequest request;
    request.set_subscription(name);
    return Ask(Repeat::kIfMayPass, subscriber_, &SubscriberStub::GetSubscription, request);
  }

  absl::StatusOr<Subscription> UpdateSubscription(const Subscription& subscription,
                                                  const std::vector<std::string>& paths) override {
    v1::UpdateSubscriptionRequest request;
    *request.mutable_subscription() = ToProto(subscription);
    for (const std::string& path : paths) request.mutable_update_mask()->add_paths(path);
    return Ask(Repeat::kIfMayPass, subscriber_, &SubscriberStub::UpdateSubscription, request);
  }

  absl::StatusOr<std::vector<Subscription>> ListSubscriptions(const std::string& project) override {
    return List(project, subscriber_, &SubscriberStub::ListSubscriptions,
                &v1::ListSubscriptionsResponse::subscriptions);
  }

  absl::Status DeleteSubscription(const std::string& name) override {
    v1::DeleteSubscriptionRequest request;
    request.set_subscription(name);
    return Call(Repeat::kDeletion, subscriber_, &SubscriberStub::DeleteSubscription, request)
        .status();
  }

  absl::Status DetachSubscription(const std::string& name) override {
    v1::DetachSubscriptionRequest request;
    request.set_subscription(name);
    return Call(Repeat::kIfMayPass, publisher_, &PublisherStub::DetachSubscription, request)
        .status();
  }

  absl::StatusOr<Snapshot> CreateSnapshot(
      const std::string& name, const std::string& subscription,
      const std::map<std::string, std::string>& labels) override {
    v1::CreateSnapshotRequest request;
    request.set_name(name);
    request.set_subscription(subscription);
    request.mutable_labels()->insert(labels.begin(), labels.end());
    return Ask(Repeat::kNever, subscriber_, &SubscriberStub::CreateSnapshot, request);
  }

  absl::StatusOr<Snapshot> GetSnapshot(const std::string& name) override {
    v1::GetSnapshotRequest request;
    request.set_snapshot(name);
    return Ask(Repeat::kIfMayPass, subscriber_, &SubscriberStub::GetSnapshot, request);
  }

  absl::StatusOr<std::vector<Snapshot>> ListSnapshots(const std::string& project) override {
    return List(project, subscriber_, &SubscriberStub::ListSnapshots,
                &v1::ListSnapshotsResponse::snapshots);
  }

  absl::Status DeleteSnapshot(const std::string& name) override {
    v1::DeleteSnapshotRequest request;
    request.set_snapshot(name);
    return Call(Repeat::kDeletion, subscriber_, &SubscriberStub::DeleteSnapshot, request).status();
  }

  absl::Status SeekToTime(const std::string& subscription, WallTime time) override {
    v1::SeekRequest request;
    request.set_subscription(subscription);
    *request.mutable_time() = ToProto(time);
    return Call(Repeat::kIfMayPass, subscriber_, &SubscriberStub::Seek, request).status();
  }

  absl::Status SeekToSnapshot(const std::string& subscription,
                              const std::string& snapshot) override {
    v1::SeekRequest request;
    request.set_subscription(subscription);
    request.set_snapshot(snapshot);
    return Call(Repeat::kIfMayPass, subscriber_, &SubscriberStub::Seek, request).status();
  }

  absl::StatusOr<Schema> CreateSchema(const Schema& schema) override {
    v1::CreateSchemaRequest request;
    request.set_parent(ProjectName(ProjectOf(schema.name)));
    request.set_schema_id(std::string(ShortName(schema.name)));
    *request.mutable_schema() = ToProto(schema);
    return Ask(Repeat::kNever, schemas_, &SchemaStub::CreateSchema, request);
  }

  absl::StatusOr<Schema> GetSchema(const std::string& name) override {
    v1::GetSchemaRequest request;
    request.set_name(name);
    request.set_view(v1::FULL);
    return Ask(Repeat::kIfMayPass, schemas_, &SchemaStub::GetSchema, request);
  }

  absl::StatusOr<Schema> CommitSchema(const Schema& schema) override {
    v1::CommitSchemaRequest request;
    request.set_name(schema.name);
    *request.mutable_schema() = ToProto(schema);
    return Ask(Repeat::kNever, schemas_, &SchemaStub::CommitSchema, request);
  }

  absl::Status DeleteSchema(const std::string& name) override {
    v1::DeleteSchemaRequest request;
    request.set_name(name);
    return Call(Repeat::kDeletion, schemas_, &SchemaStub::DeleteSchema, request).status();
  }

 private:
  enum class Repeat { kNever, kIfMayPass, kDeletion };
  template <typename Stub, typename Request, typename Response>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Repeat repeat, Stub& stub, Method<Stub, Request, Response> method,
                                const Request& request) {
    const SteadyTime patience = std::chrono::steady_clock::now() + kPatience;
    Backoff backoff(kRetry);
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kAttempt);
      Response response;
      const absl::Status status =
          FromGrpc((stub.*method)(&context, request, &response), client_->address);
      if (status.ok()) return response;
      const bool deleted_before = repeat == Repeat::kDeletion && backoff.attempts() > 0 &&
                                  status.code() == absl::StatusCode::kNotFound;
      if (deleted_before) return response;
      // INTERNAL and UNKNOWN are likelier a refusal here than a fault that passes.
      const bool may_pass = status.code() == absl::StatusCode::kUnavailable ||
                            status.code() == absl::StatusCode::kAborted ||
                            status.code() == absl::StatusCode::kResourceExhausted;
      if (repeat == Repeat::kNever || !may_pass) return status;
      const Millis delay = backoff.Next();
      if (std::chrono::steady_clock::now() + delay >= patience) return status;
      std::this_thread::sleep_for(delay);
    }
  }

  // A call that is answered with a resource.
  template <typename Stub, typename Request, typename Resource>
  auto Ask(Repeat repeat, Stub& stub, Method<Stub, Request, Resource> method,
           const Request& request) -> absl::StatusOr<decltype(FromProto(Resource()))> {
    ASSIGN_OR_RETURN(const Resource resource, Call(repeat, stub, method, request));
    return FromProto(resource);
  }

  // All pages of what a project has of one kind.
  template <typename Stub, typename Request, typename Response, typename Resource>
  auto List(const std::string& project, Stub& stub, Method<Stub, Request, Response> method,
            const google::protobuf::RepeatedPtrField<Resource>& (Response::*items)() const)
      -> absl::StatusOr<std::vector<decltype(FromProto(Resource()))>> {
    std::vector<decltype(FromProto(Resource()))> all;
    Request request;
    request.set_project(ProjectName(project));
    do {
      ASSIGN_OR_RETURN(const Response page, Call(Repeat::kIfMayPass, stub, method, request));
      for (const Resource& item : (page.*items)()) all.push_back(FromProto(item));
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return all;
  }

  const std::shared_ptr<Client> client_;
  PublisherStub publisher_;
  SubscriberStub subscriber_;
  SchemaStub schemas_;
};

}  // namespace

std::unique_ptr<Admin> MakeAdmin(std::shared_ptr<Client> client) {
  return std::make_unique<GrpcAdmin>(std::move(client));
}

}  // namespace lockstep::pubsub::grpc_client
