// What a client may not do, and that the server lives on.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "emulator/testing/wire_fixture.h"

namespace lockstep::emulator {
namespace {

using grpc::StatusCode;
using ::testing::SizeIs;

class LimitsWire : public WireTest {
 protected:
  void SetUp() override {
    WireTest::SetUp();
    ASSERT_TRUE(CreateTopic().ok());
    ASSERT_TRUE(CreateSubscription().ok());
  }

  StatusCode CodeOfPublish(const std::function<void(pb::PubsubMessage*)>& change, int count = 1) {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    for (int i = 0; i < count; ++i) {
      auto* message = request.add_messages();
      message->set_data("x");
      change(message);
    }
    return TryPublish(request).error_code();
  }
  StatusCode CodeOfStream(const std::function<void(pb::StreamingPullRequest*)>& change) {
    return Open(kSubscription, change)->Finish().error_code();
  }
  StreamInfo InfoOf(const std::string& client_id) {
    for (const StreamInfo& each : server_->faults().Streams()) {
      if (each.client_id == client_id) return each;
    }
    return {};
  }
};

TEST_F(LimitsWire, MessagesAreHeldToTheServicesLimits) {
  const auto nothing = [](auto*) {};
  const auto key = [](size_t size) {
    return [size](auto* m) { m->set_ordering_key(std::string(size, 'k')); };
  };
  const auto attribute = [](size_t name, size_t value) {
    return [=](auto* m) {
      (*m->mutable_attributes())[std::string(name, 'n')] = std::string(value, 'v');
    };
  };
  const auto attributes = [](int count) {
    return [count](auto* m) {
      for (int i = 0; i < count; ++i) (*m->mutable_attributes())["a" + std::to_string(i)] = "";
    };
  };
  EXPECT_EQ(CodeOfPublish(nothing, 1000), StatusCode::OK);
  EXPECT_EQ(CodeOfPublish(nothing, 1001), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish(nothing, 0), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish([](auto* m) { m->clear_data(); }), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish(key(1024)), StatusCode::OK);
  EXPECT_EQ(CodeOfPublish(key(1025)), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish(attribute(256, 1024)), StatusCode::OK);
  EXPECT_EQ(CodeOfPublish(attribute(257, 1)), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish(attribute(1, 1025)), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish(attribute(0, 1)), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish([](auto* m) { (*m->mutable_attributes())["googx"] = "1"; }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish([](auto* m) { (*m->mutable_attributes())["googclient_x"] = "1"; }),
            StatusCode::OK);
  EXPECT_EQ(CodeOfPublish(attributes(100)), StatusCode::OK);
  EXPECT_EQ(CodeOfPublish(attributes(101)), StatusCode::INVALID_ARGUMENT);
}

TEST_F(LimitsWire, ARequestHoldsTenMebibytes) {
  const auto data = [](size_t size) {
    return [size](auto* m) { m->set_data(std::string(size, 'x')); };
  };
  EXPECT_EQ(CodeOfPublish(data((10 << 20) - 100)), StatusCode::OK);
  EXPECT_EQ(CodeOfPublish(data(10 << 20)), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish(data(64 << 20)), StatusCode::RESOURCE_EXHAUSTED);  // gRPC's own answer
  EXPECT_THAT(PullNow(), SizeIs(1));
}

TEST_F(LimitsWire, AckRequestsHold512Kibibytes) {
  const std::string id(1024, 'x');
  EXPECT_TRUE(Acknowledge(std::vector<std::string>(500, id)).ok());
  EXPECT_EQ(Acknowledge(std::vector<std::string>(600, id)).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ModifyAckDeadline(std::vector<std::string>(600, id), 10).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Acknowledge({}).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ModifyAckDeadline({id}, 601).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ModifyAckDeadline({id}, -1).error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(LimitsWire, UnknownAckIdsDoNoHarm) {
  Publish("a");
  const auto taken = PullNow();
  std::string other = taken[0].ack_id();
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_TRUE(Acknowledge({"", "nonsense", std::string(48, '0'), std::string(48, 'f')}).ok());
  EXPECT_TRUE(ModifyAckDeadline({"nonsense", std::string(48, 'f')}, 0).ok());
  EXPECT_TRUE(ModifyAckDeadline({taken[0].ack_id()}, 0).ok());
  EXPECT_THAT(PullNow(), SizeIs(1));
}

TEST_F(LimitsWire, AnAckIdOfAnotherSubscriptionDoesNotAckHere) {
  const std::string other = "projects/test/subscriptions/other";
  ASSERT_TRUE(CreateSubscription([&](auto* s) { s->set_name(other); }).ok());
  Publish("a");
  const auto there = PullNow(1, other);
  const auto here = PullNow(1);
  ASSERT_THAT(here, SizeIs(1));
  EXPECT_TRUE(Acknowledge({there[0].ack_id()}).ok());
  EXPECT_TRUE(ModifyAckDeadline({here[0].ack_id()}, 0).ok());
  EXPECT_THAT(PullNow(1), SizeIs(1));
}

TEST_F(LimitsWire, AStreamsFirstRequestIsChecked) {
  EXPECT_EQ(CodeOfStream([](auto* r) { r->set_stream_ack_deadline_seconds(9); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfStream([](auto* r) { r->set_stream_ack_deadline_seconds(601); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfStream([](auto* r) { r->set_stream_ack_deadline_seconds(0); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfStream([](auto* r) { r->set_subscription("nonsense"); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfStream([](auto* r) { r->set_subscription("projects/p/subscriptions/missing"); }),
            StatusCode::NOT_FOUND);
  EXPECT_EQ(CodeOfStream([](auto* r) { r->add_modify_deadline_seconds(10); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfStream([](auto*) {}), StatusCode::OK);
}

TEST_F(LimitsWire, ALaterRequestMayNotNameASubscription) {
  auto stream = Open();
  pb::StreamingPullRequest request;
  request.set_subscription(kSubscription);
  stream->Write(request);
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(LimitsWire, AClientThatNeverReadsCostsOneResponseAndHoldsNobodyUp) {
  pb::PublishRequest request;  // 1 MB
  request.set_topic(kTopic);
  for (int i = 0; i < 100; ++i) request.add_messages()->set_data(std::string(10'000, 'x'));
  int published = 0;
  for (; published < 20; ++published) ASSERT_TRUE(TryPublish(request).ok());
  // With a window that does not grow: one that does would take more whenever it finds the time.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = pb::Subscriber::NewStub(
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments));
  pb::StreamingPullRequest first;
  first.set_subscription(kSubscription);
  first.set_stream_ack_deadline_seconds(60);
  first.set_client_id("deaf");
  auto deaf = std::make_unique<TestStream>(stub.get(), first);
  // Its window fills; then its response can't leave, and it takes no other.
  int64_t most_unsent = 0;
  StreamInfo stuck;
  for (int same = 0; same < 20 && published < 60; ++published) {
    ASSERT_TRUE(TryPublish(request).ok());
    const StreamInfo now = InfoOf("deaf");
    most_unsent = std::max(most_unsent, now.unsent_bytes);
    same = now.unsent_bytes > 0 && now.outstanding_bytes == stuck.outstanding_bytes ? same + 1 : 0;
    stuck = now;
  }
  EXPECT_LT(published, 60) << "it takes on and on";
  EXPECT_GT(stuck.unsent_bytes, 0);
  EXPECT_LE(most_unsent, 1'100'000);
  EXPECT_LT(stuck.outstanding_bytes, 5'000'000);
  // The rest is there for others, all of it, and meanwhile the deaf one gets no more.
  const auto rest = static_cast<size_t>(published * 100 - stuck.outstanding_messages);
  auto stream = Open();
  EXPECT_THAT(stream->Read(rest), SizeIs(rest));
  EXPECT_EQ(InfoOf("deaf").outstanding_messages, stuck.outstanding_messages);
  deaf->Cancel();
  EXPECT_FALSE(Publish("the server lives").empty());
}

TEST_F(LimitsWire, AClientThatAcksAndNeverReadsItsConfirmationsIsReadNoFurther) {
  const std::string subscription = "projects/test/subscriptions/once";
  ASSERT_TRUE(CreateSubscription([&](auto* s) {
                s->set_name(subscription);
                s->set_enable_exactly_once_delivery(true);
              }).ok());
  auto deaf = Open(subscription, [](auto* first) { first->set_client_id("deaf"); });
  pb::StreamingPullRequest request;  // each id is refused, and the refusal is to be sent back
  for (int i = 0; i < 500; ++i) request.add_ack_ids(std::string(1000, 'x'));
  std::atomic<int> written = 0;
  std::thread writer([&] {
    while (written < 100 && deaf->TryWrite(request)) ++written;
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (InfoOf("deaf").unsent_bytes <= 1 << 20 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(Publish("others are served").empty());
  const int64_t unsent = InfoOf("deaf").unsent_bytes;
  EXPECT_GT(unsent, 1 << 20);
  EXPECT_LT(unsent, 4 << 20);  // of the 50 MB that it would have
  deaf->Cancel();
  writer.join();
  EXPECT_FALSE(Publish("the server lives").empty());
}

TEST_F(LimitsWire, PullNeedsAPositiveCount) {
  pb::PullRequest request;
  request.set_subscription(kSubscription);
  pb::PullResponse response;
  EXPECT_EQ(Call(subscriber_.get(), &pb::Subscriber::Stub::Pull, request, &response).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

TEST_F(LimitsWire, APullWaitsForItsMessage) {
  pb::PullRequest request;
  request.set_subscription(kSubscription);
  request.set_max_messages(1);
  pb::PullResponse response;
  std::thread publisher([this] { Publish("late"); });
  EXPECT_TRUE(Call(subscriber_.get(), &pb::Subscriber::Stub::Pull, request, &response).ok());
  publisher.join();
  ASSERT_EQ(response.received_messages_size(), 1);
  EXPECT_EQ(response.received_messages(0).message().data(), "late");
}

}  // namespace
}  // namespace lockstep::emulator
