#include "emulator/testing/wire_fixture.h"

#include <chrono>
#include <thread>
#include <utility>

#include "emulator/wire/proto_time.h"

namespace lockstep::emulator {

TestStream::TestStream(pb::Subscriber::Stub* stub, const pb::StreamingPullRequest& first) {
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  stream_ = stub->StreamingPull(&context_);
  stream_->Write(first);
}

TestStream::~TestStream() { Finish(); }

std::vector<pb::ReceivedMessage> TestStream::Read(size_t count) {
  while (ahead_.size() < count) {
    pb::StreamingPullResponse response;
    if (!stream_->Read(&response)) {
      finished_ = true;
      const grpc::Status status = stream_->Finish();
      ADD_FAILURE() << "the stream ended after " << ahead_.size() << " of " << count
                    << " messages: " << status.error_message();
      return std::exchange(ahead_, {});
    }
    for (auto& message : *response.mutable_received_messages()) {
      ahead_.push_back(std::move(message));
    }
  }
  std::vector<pb::ReceivedMessage> read(ahead_.begin(),
                                        ahead_.begin() + static_cast<std::ptrdiff_t>(count));
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(count));
  return read;
}

void TestStream::Ack(const std::vector<std::string>& ids) {
  pb::StreamingPullRequest request;
  for (const auto& id : ids) request.add_ack_ids(id);
  Write(request);
}

void TestStream::Nack(const std::string& id) {
  pb::StreamingPullRequest request;
  request.add_modify_deadline_ack_ids(id);
  request.add_modify_deadline_seconds(0);
  Write(request);
}

grpc::Status TestStream::Finish() {
  if (finished_) return grpc::Status::OK;
  stream_->WritesDone();
  return AwaitEnd();
}

grpc::Status TestStream::AwaitEnd() {
  finished_ = true;
  pb::StreamingPullResponse response;
  while (stream_->Read(&response)) {
  }
  return stream_->Finish();
}

void WireTest::SetUp() {
  server_ = std::make_unique<Server>(ServerOptions());
  ASSERT_TRUE(server_->Start().ok());
  Connect(server_->address());
}

void WireTest::Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  publisher_ = pb::Publisher::NewStub(channel_);
  subscriber_ = pb::Subscriber::NewStub(channel_);
}

grpc::StatusCode WireTest::Until(grpc::StatusCode wanted,
                                 const std::function<grpc::Status()>& call) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  grpc::StatusCode code = call().error_code();
  while (code != wanted && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
    code = call().error_code();
  }
  return code;
}

grpc::Status WireTest::CreateTopic(const std::string& name) {
  pb::Topic request;
  request.set_name(name);
  pb::Topic response;
  return Call(publisher_.get(), &pb::Publisher::Stub::CreateTopic, request, &response);
}

grpc::Status WireTest::CreateSubscription(const std::function<void(pb::Subscription*)>& change) {
  pb::Subscription request;
  request.set_name(kSubscription);
  request.set_topic(kTopic);
  if (change) change(&request);
  pb::Subscription response;
  return Call(subscriber_.get(), &pb::Subscriber::Stub::CreateSubscription, request, &response);
}

std::string WireTest::Publish(const std::string& data, const std::string& key,
                              const std::map<std::string, std::string>& attributes,
                              const std::string& topic) {
  pb::PublishRequest request;
  request.set_topic(topic);
  auto* message = request.add_messages();
  message->set_data(data);
  message->set_ordering_key(key);
  message->mutable_attributes()->insert(attributes.begin(), attributes.end());
  pb::PublishResponse response;
  const grpc::Status status =
      Call(publisher_.get(), &pb::Publisher::Stub::Publish, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.message_ids_size() == 1 ? response.message_ids(0) : "";
}

grpc::Status WireTest::TryPublish(const pb::PublishRequest& request) {
  pb::PublishResponse response;
  return Call(publisher_.get(), &pb::Publisher::Stub::Publish, request, &response);
}

std::unique_ptr<TestStream> WireTest::Open(
    const std::string& subscription, const std::function<void(pb::StreamingPullRequest*)>& change) {
  pb::StreamingPullRequest request;
  request.set_subscription(subscription);
  request.set_stream_ack_deadline_seconds(60);
  if (change) change(&request);
  return std::make_unique<TestStream>(subscriber_.get(), request);
}

std::vector<pb::ReceivedMessage> WireTest::PullNow(int max, const std::string& subscription) {
  pb::PullRequest request;
  request.set_subscription(subscription);
  request.set_max_messages(max);
  request.set_return_immediately(true);
  pb::PullResponse response;
  const grpc::Status status =
      Call(subscriber_.get(), &pb::Subscriber::Stub::Pull, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {response.received_messages().begin(), response.received_messages().end()};
}

grpc::Status WireTest::Acknowledge(const std::vector<std::string>& ids) {
  pb::AcknowledgeRequest request;
  request.set_subscription(kSubscription);
  for (const auto& id : ids) request.add_ack_ids(id);
  google::protobuf::Empty response;
  return Call(subscriber_.get(), &pb::Subscriber::Stub::Acknowledge, request, &response);
}

grpc::Status WireTest::ModifyAckDeadline(const std::vector<std::string>& ids, int seconds) {
  pb::ModifyAckDeadlineRequest request;
  request.set_subscription(kSubscription);
  request.set_ack_deadline_seconds(seconds);
  for (const auto& id : ids) request.add_ack_ids(id);
  google::protobuf::Empty response;
  return Call(subscriber_.get(), &pb::Subscriber::Stub::ModifyAckDeadline, request, &response);
}

grpc::Status WireTest::SeekToTime(WallTime time, const std::string& subscription) {
  pb::SeekRequest request;
  request.set_subscription(subscription);
  *request.mutable_time() = ToProto(time);
  pb::SeekResponse response;
  return Call(subscriber_.get(), &pb::Subscriber::Stub::Seek, request, &response);
}

std::vector<std::string> DataOf(const std::vector<pb::ReceivedMessage>& messages) {
  std::vector<std::string> data;
  for (const auto& message : messages) data.push_back(message.message().data());
  return data;
}

std::vector<std::string> AckIdsOf(const std::vector<pb::ReceivedMessage>& messages) {
  std::vector<std::string> ids;
  for (const auto& message : messages) ids.push_back(message.ack_id());
  return ids;
}

}  // namespace lockstep::emulator
