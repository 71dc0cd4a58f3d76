#include "pubsub/grpc/admin.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "platform/retry_policy.h"
#include "platform/status.h"
#include "pubsub/grpc/channel/status.h"
#include "pubsub/grpc/codec/resource_codec.h"
#include "pubsub/grpc/codec/wire_time.h"
#include "pubsub/names.h"

namespace lockstep::pubsub::grpc_client {
namespace {

namespace v1 = google::pubsub::v1;
using google::protobuf::Empty;

constexpr Millis kAttempt{20'000};   // one try
constexpr Millis kPatience{10'000};  // no new try after that

const RetryPolicy kRetry{.max_attempts = 0,
                         .base = Millis(100),
                         .factor = 2,
                         .cap = Millis(2'000),
                         .jitter = RetryPolicy::Jitter::kProportional,
                         .jitter_amount = 0.3};

std::string ProjectName(const std::string& project) {
  return project.rfind("projects/", 0) == 0 ? project : "projects/" + project;
}

// "projects/p/schemas/s" -> "projects/p"
std::string ParentOf(const std::string& name) {
  const size_t end = name.find('/', sizeof("projects/") - 1);
  return end == std::string::npos ? name : name.substr(0, end);
}

}  // namespace

GrpcAdmin::GrpcAdmin(std::shared_ptr<Client> client)
    : client_(std::move(client)),
      publisher_(v1::Publisher::NewStub(client_->channel(0))),
      subscriber_(v1::Subscriber::NewStub(client_->channel(0))),
      schemas_(v1::SchemaService::NewStub(client_->channel(0))) {}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> GrpcAdmin::Call(Repeat repeat, Stub& stub,
                                         grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                      const Request&, Response*),
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

absl::StatusOr<Topic> GrpcAdmin::CreateTopic(const Topic& topic) {
  ASSIGN_OR_RETURN(const v1::Topic made, Call(Repeat::kNever, *publisher_,
                                              &v1::Publisher::Stub::CreateTopic, ToProto(topic)));
  return FromProto(made);
}

absl::StatusOr<Topic> GrpcAdmin::GetTopic(const std::string& name) {
  v1::GetTopicRequest request;
  request.set_topic(name);
  ASSIGN_OR_RETURN(const v1::Topic topic,
                   Call(Repeat::kIfMayPass, *publisher_, &v1::Publisher::Stub::GetTopic, request));
  return FromProto(topic);
}

absl::StatusOr<Topic> GrpcAdmin::UpdateTopic(const Topic& topic,
                                             const std::vector<std::string>& paths) {
  v1::UpdateTopicRequest request;
  *request.mutable_topic() = ToProto(topic);
  for (const std::string& path : paths) request.mutable_update_mask()->add_paths(path);
  ASSIGN_OR_RETURN(const v1::Topic updated, Call(Repeat::kIfMayPass, *publisher_,
                                                 &v1::Publisher::Stub::UpdateTopic, request));
  return FromProto(updated);
}

absl::StatusOr<std::vector<Topic>> GrpcAdmin::ListTopics(const std::string& project) {
  std::vector<Topic> topics;
  v1::ListTopicsRequest request;
  request.set_project(ProjectName(project));
  do {
    ASSIGN_OR_RETURN(
        const v1::ListTopicsResponse page,
        Call(Repeat::kIfMayPass, *publisher_, &v1::Publisher::Stub::ListTopics, request));
    for (const auto& topic : page.topics()) topics.push_back(FromProto(topic));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return topics;
}

absl::Status GrpcAdmin::DeleteTopic(const std::string& name) {
  v1::DeleteTopicRequest request;
  request.set_topic(name);
  return Call(Repeat::kDeletion, *publisher_, &v1::Publisher::Stub::DeleteTopic, request).status();
}

absl::StatusOr<Subscription> GrpcAdmin::CreateSubscription(const Subscription& subscription) {
  ASSIGN_OR_RETURN(const v1::Subscription made,
                   Call(Repeat::kNever, *subscriber_, &v1::Subscriber::Stub::CreateSubscription,
                        ToProto(subscription)));
  return FromProto(made);
}

absl::StatusOr<Subscription> GrpcAdmin::GetSubscription(const std::string& name) {
  v1::GetSubscriptionRequest request;
  request.set_subscription(name);
  ASSIGN_OR_RETURN(
      const v1::Subscription subscription,
      Call(Repeat::kIfMayPass, *subscriber_, &v1::Subscriber::Stub::GetSubscription, request));
  return FromProto(subscription);
}

absl::StatusOr<Subscription> GrpcAdmin::UpdateSubscription(const Subscription& subscription,
                                                           const std::vector<std::string>& paths) {
  v1::UpdateSubscriptionRequest request;
  *request.mutable_subscription() = ToProto(subscription);
  for (const std::string& path : paths) request.mutable_update_mask()->add_paths(path);
  ASSIGN_OR_RETURN(
      const v1::Subscription updated,
      Call(Repeat::kIfMayPass, *subscriber_, &v1::Subscriber::Stub::UpdateSubscription, request));
  return FromProto(updated);
}

absl::StatusOr<std::vector<Subscription>> GrpcAdmin::ListSubscriptions(const std::string& project) {
  std::vector<Subscription> subscriptions;
  v1::ListSubscriptionsRequest request;
  request.set_project(ProjectName(project));
  do {
    ASSIGN_OR_RETURN(
        const v1::ListSubscriptionsResponse page,
        Call(Repeat::kIfMayPass, *subscriber_, &v1::Subscriber::Stub::ListSubscriptions, request));
    for (const auto& proto : page.subscriptions()) subscriptions.push_back(FromProto(proto));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return subscriptions;
}

absl::Status GrpcAdmin::DeleteSubscription(const std::string& name) {
  v1::DeleteSubscriptionRequest request;
  request.set_subscription(name);
  return Call(Repeat::kDeletion, *subscriber_, &v1::Subscriber::Stub::DeleteSubscription, request)
      .status();
}

absl::Status GrpcAdmin::DetachSubscription(const std::string& name) {
  v1::DetachSubscriptionRequest request;
  request.set_subscription(name);
  return Call(Repeat::kIfMayPass, *publisher_, &v1::Publisher::Stub::DetachSubscription, request)
      .status();
}

absl::StatusOr<Snapshot> GrpcAdmin::CreateSnapshot(
    const std::string& name, const std::string& subscription,
    const std::map<std::string, std::string>& labels) {
  v1::CreateSnapshotRequest request;
  request.set_name(name);
  request.set_subscription(subscription);
  request.mutable_labels()->insert(labels.begin(), labels.end());
  ASSIGN_OR_RETURN(const v1::Snapshot made, Call(Repeat::kNever, *subscriber_,
                                                 &v1::Subscriber::Stub::CreateSnapshot, request));
  return FromProto(made);
}

absl::StatusOr<Snapshot> GrpcAdmin::GetSnapshot(const std::string& name) {
  v1::GetSnapshotRequest request;
  request.set_snapshot(name);
  ASSIGN_OR_RETURN(const v1::Snapshot snapshot, Call(Repeat::kIfMayPass, *subscriber_,
                                                     &v1::Subscriber::Stub::GetSnapshot, request));
  return FromProto(snapshot);
}

absl::StatusOr<std::vector<Snapshot>> GrpcAdmin::ListSnapshots(const std::string& project) {
  std::vector<Snapshot> snapshots;
  v1::ListSnapshotsRequest request;
  request.set_project(ProjectName(project));
  do {
    ASSIGN_OR_RETURN(
        const v1::ListSnapshotsResponse page,
        Call(Repeat::kIfMayPass, *subscriber_, &v1::Subscriber::Stub::ListSnapshots, request));
    for (const auto& snapshot : page.snapshots()) snapshots.push_back(FromProto(snapshot));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return snapshots;
}

absl::Status GrpcAdmin::DeleteSnapshot(const std::string& name) {
  v1::DeleteSnapshotRequest request;
  request.set_snapshot(name);
  return Call(Repeat::kDeletion, *subscriber_, &v1::Subscriber::Stub::DeleteSnapshot, request)
      .status();
}

absl::Status GrpcAdmin::SeekToTime(const std::string& subscription, WallTime time) {
  v1::SeekRequest request;
  request.set_subscription(subscription);
  *request.mutable_time() = ToProto(time);
  return Call(Repeat::kIfMayPass, *subscriber_, &v1::Subscriber::Stub::Seek, request).status();
}

absl::Status GrpcAdmin::SeekToSnapshot(const std::string& subscription,
                                       const std::string& snapshot) {
  v1::SeekRequest request;
  request.set_subscription(subscription);
  request.set_snapshot(snapshot);
  return Call(Repeat::kIfMayPass, *subscriber_, &v1::Subscriber::Stub::Seek, request).status();
}

absl::StatusOr<Schema> GrpcAdmin::CreateSchema(const Schema& schema) {
  v1::CreateSchemaRequest request;
  request.set_parent(ParentOf(schema.name));
  request.set_schema_id(std::string(ShortName(schema.name)));
  *request.mutable_schema() = ToProto(schema);
  ASSIGN_OR_RETURN(const v1::Schema made, Call(Repeat::kNever, *schemas_,
                                               &v1::SchemaService::Stub::CreateSchema, request));
  return FromProto(made);
}

absl::StatusOr<Schema> GrpcAdmin::GetSchema(const std::string& name) {
  v1::GetSchemaRequest request;
  request.set_name(name);
  request.set_view(v1::FULL);
  ASSIGN_OR_RETURN(const v1::Schema schema, Call(Repeat::kIfMayPass, *schemas_,
                                                 &v1::SchemaService::Stub::GetSchema, request));
  return FromProto(schema);
}

absl::StatusOr<Schema> GrpcAdmin::CommitSchema(const Schema& schema) {
  v1::CommitSchemaRequest request;
  request.set_name(schema.name);
  *request.mutable_schema() = ToProto(schema);
  ASSIGN_OR_RETURN(
      const v1::Schema committed,
      Call(Repeat::kNever, *schemas_, &v1::SchemaService::Stub::CommitSchema, request));
  return FromProto(committed);
}

absl::Status GrpcAdmin::DeleteSchema(const std::string& name) {
  v1::DeleteSchemaRequest request;
  request.set_name(name);
  return Call(Repeat::kDeletion, *schemas_, &v1::SchemaService::Stub::DeleteSchema, request)
      .status();
}

}  // namespace lockstep::pubsub::grpc_client
