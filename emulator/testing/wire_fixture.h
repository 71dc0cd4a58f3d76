#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/service/server.h"
#include "google/pubsub/v1/pubsub.grpc.pb.h"

namespace lockstep::emulator {

namespace pb = google::pubsub::v1;

// A StreamingPull as a test uses it: blocking. Half-closes and drains when it goes.
class TestStream {
 public:
  TestStream(pb::Subscriber::Stub* stub, const pb::StreamingPullRequest& first);
  ~TestStream();

  // Reads until `count` messages have come (they are returned in the order of arrival). Fails the
  // test when the stream ends first.
  std::vector<pb::ReceivedMessage> Read(size_t count);
  // The next response whole.
  bool ReadResponse(pb::StreamingPullResponse* response) { return stream_->Read(response); }
  void Write(const pb::StreamingPullRequest& request) { EXPECT_TRUE(stream_->Write(request)); }
  bool TryWrite(const pb::StreamingPullRequest& request) { return stream_->Write(request); }
  void Ack(const std::vector<std::string>& ids);
  void Nack(const std::string& id);
  // Half-closes, drains and returns how the stream ended.
  grpc::Status Finish();
  // The same for a stream that the server ends: half-closing might be faster.
  grpc::Status AwaitEnd();
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::StreamingPullRequest, pb::StreamingPullResponse>>
      stream_;
  std::vector<pb::ReceivedMessage> ahead_;  // read but not asked for yet
  bool finished_ = false;
};

// A server of its own per case, and the generated stubs against it.
class WireTest : public ::testing::Test {
 protected:
  static constexpr char kTopic[] = "projects/test/topics/events";
  static constexpr char kSubscription[] = "projects/test/subscriptions/service";

  // Overridden to run the server on a test's clock or with faults.
  virtual Options ServerOptions() { return {}; }

  void SetUp() override;
  void TearDown() override { server_.reset(); }  // before the clock of a derived test is gone
  void Connect(const std::string& address);

  template <typename Stub, typename Request, typename Response>
  grpc::Status Call(Stub* stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return (stub->*method)(&context, request, response);
  }

  // Calls until the status is the wanted one (the server's timekeeper looks at a test's clock in a
  // moment, not at once), 20 s at most; returns the last one.
  static grpc::StatusCode Until(grpc::StatusCode wanted, const std::function<grpc::Status()>& call);

  grpc::Status CreateTopic(const std::string& name = kTopic);
  grpc::Status CreateSubscription(const std::function<void(pb::Subscription*)>& change = {});
  // One message; its id.
  std::string Publish(const std::string& data, const std::string& key = "",
                      const std::map<std::string, std::string>& attributes = {},
                      const std::string& topic = kTopic);
  grpc::Status TryPublish(const pb::PublishRequest& request);
  std::unique_ptr<TestStream> Open(
      const std::string& subscription = kSubscription,
      const std::function<void(pb::StreamingPullRequest*)>& change = {});
  // A Pull that returns immediately.
  std::vector<pb::ReceivedMessage> PullNow(int max = 100,
                                           const std::string& subscription = kSubscription);
  grpc::Status Acknowledge(const std::vector<std::string>& ids);
  grpc::Status ModifyAckDeadline(const std::vector<std::string>& ids, int seconds);
  grpc::Status SeekToTime(WallTime time, const std::string& subscription = kSubscription);

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::Publisher::Stub> publisher_;
  std::unique_ptr<pb::Subscriber::Stub> subscriber_;
};

std::vector<std::string> DataOf(const std::vector<pb::ReceivedMessage>& messages);
std::vector<std::string> AckIdsOf(const std::vector<pb::ReceivedMessage>& messages);

}  // namespace lockstep::emulator
