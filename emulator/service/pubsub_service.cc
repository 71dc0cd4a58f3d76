#include "emulator/service/pubsub_service.h"

#include <deque>
#include <string>
#include <string_view>
#include <type_traits>

#include "emulator/faults/ack_path.h"
#include "emulator/service/pull.h"
#include "emulator/service/rpc_status.h"
#include "emulator/service/streaming_pull.h"
#include "emulator/wire/field_rules.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

using google::protobuf::Empty;
using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;

template <typename Request>
absl::Status CheckAckRequest(const Request& request) {
  constexpr size_t kMaxBytes = 512 << 10;
  if (request.ack_ids().empty()) return InvalidArgument("The request holds no ack_ids.");
  if (const size_t size = request.ByteSizeLong(); size > kMaxBytes) {
    return InvalidArgument("Request payload size exceeds the limit: {} of {} bytes.", size,
                           kMaxBytes);
  }
  return absl::OkStatus();
}

// With exactly-once delivery a request fails when one of its ids does: an ErrorInfo in the
// status's details says which, and why.
absl::Status StatusOf(const AckReport& report) {
  if (report.invalid.empty() && report.unordered.empty() && report.temporary.empty()) {
    return absl::OkStatus();
  }
  google::rpc::ErrorInfo info;
  info.set_reason("EXACTLY_ONCE_ACKID_FAILURE");
  info.set_domain("pubsub.googleapis.com");
  auto& metadata = *info.mutable_metadata();
  for (const auto& id : report.invalid) metadata[id] = "PERMANENT_FAILURE_INVALID_ACK_ID";
  for (const auto& id : report.unordered) metadata[id] = "TRANSIENT_FAILURE_UNORDERED_ACK_ID";
  for (const auto& id : report.temporary) metadata[id] = "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE";
  // The request's status is as lasting as its worst id.
  const auto code =
      report.invalid.empty() ? absl::StatusCode::kUnavailable : absl::StatusCode::kInvalidArgument;
  google::rpc::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message("Some acknowledgement ids in the request were invalid or failed.");
  details.add_details()->PackFrom(info);
  absl::Status status(code, details.message());
  status.SetPayload(kStatusDetails, absl::Cord(details.SerializeAsString()));
  return status;
}

// The answer to a unary call. Who waits for what the call has brought is woken once it is sent.
struct Answer : grpc::ServerUnaryReactor {
  void OnDone() override {
    for (const auto& wakeable : wakes) wakeable->Wake();
    delete this;
  }
  Subscription::Wakes wakes;
};

// The messages of a Publish and their attributes are thousands of small objects: an arena takes
// and frees them together.
class PublishMemory : public grpc::MessageAllocator<pb::PublishRequest, pb::PublishResponse> {
 public:
  using Holder = grpc::MessageHolder<pb::PublishRequest, pb::PublishResponse>;
  Holder* AllocateMessages() override { return new InArena; }

 private:
  struct InArena : Holder {
    InArena() {
      set_request(google::protobuf::Arena::CreateMessage<pb::PublishRequest>(&arena));
      set_response(&answer);
    }
    void Release() override { delete this; }

    google::protobuf::Arena arena;
    pb::PublishResponse answer;
  };
};

// A table of the calls and what each leads to. They are registered as generated code does it, but
// without a virtual function for each.
class PubsubService : public grpc::Service {
 public:
  PubsubService(Broker* broker, SchemaRegistry* schemas, Faults* faults, Timekeeper* timekeeper)
      : broker_(broker), schemas_(schemas), faults_(faults), timekeeper_(timekeeper) {
    AddPublisher();
    AddSubscriber();
    AddSchemas();
  }

 private:
  // Registers a method, such as "Publisher/Publish", and returns its index.
  int Register(std::string_view method, RpcMethod::RpcType type) {
    paths_.push_back(fmt::format("/google.pubsub.v1.{}", method));  // gRPC keeps a pointer to it
    AddMethod(new RpcServiceMethod(paths_.back().c_str(), type, nullptr));
    return static_cast<int>(paths_.size()) - 1;
  }

  // Registers a unary call: `reply` answers it, unless fault injection has something else in mind
  // for it or the request holds something that we don't know. `method` is a literal.
  template <typename Request, typename Response, typename Reply>
  void Add(std::string_view method, const Reply& reply) {
    const std::string_view name = method.substr(method.rfind('/') + 1);
    const auto begin = [=, this](auto*, const Request* request, Response* response) {
      auto* answer = new Answer;
      // gRPC keeps request and response until Finish.
      faults_->WhenThawed([=, this] {
        absl::Status status = faults_->CheckCall(name);
        // Publish looks at its many messages in a cheaper way.
        if (status.ok() && !std::is_same_v<Request, pb::PublishRequest>) {
          status = RefuseUnknown(*request);
        }
        if (status.ok()) status = reply(*request, response, &answer->wakes);
        answer->Finish(ToGrpc(status));
      });
      return answer;
    };
    auto* handler = new grpc::internal::CallbackUnaryHandler<Request, Response>(begin);
    if constexpr (std::is_same_v<Request, pb::PublishRequest>) {
      handler->SetMessageAllocator(&publish_memory_);
    }
    MarkMethodCallback(Register(method, RpcMethod::NORMAL_RPC), handler);
  }

  template <typename Response>
  static absl::Status Take(absl::StatusOr<Response> answer, Response* response) {
    if (answer.ok()) *response = *std::move(answer);
    return answer.status();
  }

  // A member function of the broker or the schemas that returns the response …
  template <typename Owner, typename Request, typename Response>
  void Call(std::string_view method, Owner* owner,
            absl::StatusOr<Response> (Owner::*handle)(const Request&)) {
    Add<Request, Response>(method, [=](const Request& request, Response* response, auto*) {
      return Take((owner->*handle)(request), response);
    });
  }

  // … or one whose response is empty.
  template <typename Response, typename Owner, typename Request>
  void Call(std::string_view method, Owner* owner, absl::Status (Owner::*handle)(const Request&)) {
    Add<Request, Response>(
        method, [=](const Request& request, auto*, auto*) { return (owner->*handle)(request); });
  }

  void AddPublisher() {
    Call("Publisher/CreateTopic", broker_, &Broker::CreateTopic);
    Call("Publisher/UpdateTopic", broker_, &Broker::UpdateTopic);
    Add<pb::PublishRequest, pb::PublishResponse>(
        "Publisher/Publish", [this](const auto& request, auto* response, auto* wakes) {
          return Take(broker_->Publish(request, wakes), response);
        });
    Call("Publisher/GetTopic", broker_, &Broker::GetTopic);
    Call("Publisher/ListTopics", broker_, &Broker::ListTopics);
    Call("Publisher/ListTopicSubscriptions", broker_, &Broker::ListTopicSubscriptions);
    Call("Publisher/ListTopicSnapshots", broker_, &Broker::ListTopicSnapshots);
    Call<Empty>("Publisher/DeleteTopic", broker_, &Broker::DeleteTopic);
    Call<pb::DetachSubscriptionResponse>("Publisher/DetachSubscription", broker_,
                                         &Broker::DetachSubscription);
  }

  void AddSubscriber() {
    Call("Subscriber/CreateSubscription", broker_, &Broker::CreateSubscription);
    Call("Subscriber/GetSubscription", broker_, &Broker::GetSubscription);
    Call("Subscriber/UpdateSubscription", broker_, &Broker::UpdateSubscription);
    Call("Subscriber/ListSubscriptions", broker_, &Broker::ListSubscriptions);
    Call<Empty>("Subscriber/DeleteSubscription", broker_, &Broker::DeleteSubscription);
    Call<Empty>("Subscriber/ModifyPushConfig", broker_, &Broker::ModifyPushConfig);
    Call<Empty>("Subscriber/ModifyAckDeadline", this, &PubsubService::ModifyAckDeadline);
    Call<Empty>("Subscriber/Acknowledge", this, &PubsubService::Acknowledge);
    Call("Subscriber/CreateSnapshot", broker_, &Broker::CreateSnapshot);
    Call("Subscriber/GetSnapshot", broker_, &Broker::GetSnapshot);
    Call("Subscriber/UpdateSnapshot", broker_, &Broker::UpdateSnapshot);
    Call("Subscriber/ListSnapshots", broker_, &Broker::ListSnapshots);
    Call<Empty>("Subscriber/DeleteSnapshot", broker_, &Broker::DeleteSnapshot);
    Call<pb::SeekResponse>("Subscriber/Seek", broker_, &Broker::Seek);

    MarkMethodCallback(
        Register("Subscriber/Pull", RpcMethod::NORMAL_RPC),
        new grpc::internal::CallbackUnaryHandler<pb::PullRequest, pb::PullResponse>(
            [this](auto*, const pb::PullRequest* request, pb::PullResponse* response) {
              return Pull::Begin(broker_, faults_, timekeeper_, request, response);
            }));
    // In raw bytes, for speed.
    MarkMethodRawCallback(
        Register("Subscriber/StreamingPull", RpcMethod::BIDI_STREAMING),
        new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
            [this](auto*) { return StreamingPull::Begin(broker_, faults_, timekeeper_); }));
  }

  void AddSchemas() {
    Call("SchemaService/CreateSchema", schemas_, &SchemaRegistry::Create);
    Call("SchemaService/GetSchema", schemas_, &SchemaRegistry::Get);
    Call("SchemaService/ListSchemas", schemas_, &SchemaRegistry::List);
    Call("SchemaService/ListSchemaRevisions", schemas_, &SchemaRegistry::ListRevisions);
    Call("SchemaService/CommitSchema", schemas_, &SchemaRegistry::Commit);
    Call("SchemaService/RollbackSchema", schemas_, &SchemaRegistry::Rollback);
    Call("SchemaService/DeleteSchemaRevision", schemas_, &SchemaRegistry::DeleteRevision);
    Call<Empty>("SchemaService/DeleteSchema", broker_, &Broker::DeleteSchema);
    Call<pb::ValidateSchemaResponse>("SchemaService/ValidateSchema", schemas_,
                                     &SchemaRegistry::ValidateSchema);
    Call<pb::ValidateMessageResponse>("SchemaService/ValidateMessage", schemas_,
                                      &SchemaRegistry::ValidateMessage);
  }

  absl::Status ModifyAckDeadline(const pb::ModifyAckDeadlineRequest& request) {
    const int seconds = request.ack_deadline_seconds();
    RETURN_IF_ERROR(CheckAckRequest(request));
    RETURN_IF_ERROR(CheckRange("ack deadline", seconds, 0, 600, " s"));
    ASSIGN_OR_RETURN(const auto subscription, broker_->FindSubscription(request.subscription()));
    ASSIGN_OR_RETURN(const auto report,
                     subscription->ModifyAckDeadline(request.ack_ids(), {seconds}));
    return StatusOf(report);
  }

  absl::Status Acknowledge(const pb::AcknowledgeRequest& request) {
    RETURN_IF_ERROR(CheckAckRequest(request));
    ASSIGN_OR_RETURN(const auto subscription, broker_->FindSubscription(request.subscription()));
    ASSIGN_OR_RETURN(const auto report,
                     AcknowledgePastFaults(faults_, timekeeper_, subscription, request.ack_ids()));
    return StatusOf(report);
  }

  Broker* const broker_;
  SchemaRegistry* const schemas_;
  Faults* const faults_;
  Timekeeper* const timekeeper_;
  std::deque<std::string> paths_;
  PublishMemory publish_memory_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewPubsubService(Broker* broker, SchemaRegistry* schemas,
                                                Faults* faults, Timekeeper* timekeeper) {
  return std::make_unique<PubsubService>(broker, schemas, faults, timekeeper);
}

}  // namespace lockstep::emulator
