// Fault injection, and the server's life cycle.
#include <gmock/gmock.h>

#include <future>

#include "emulator/testing/wire_fixture.h"
#include "platform/status.h"
#include "tests/support/fake_clock.h"

namespace lockstep::emulator {
namespace {

using grpc::StatusCode;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FaultsWire : public WireTest {
 protected:
  Options ServerOptions() override {
    Options options;
    options.clock = &clock_;
    return options;
  }
  void SetUp() override {
    WireTest::SetUp();
    ASSERT_TRUE(CreateTopic().ok());
  }
  StatusCode CodeOfPublish() {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    request.add_messages()->set_data("x");
    return TryPublish(request).error_code();
  }

  testing::FakeClock clock_;
};

TEST_F(FaultsWire, RefusesTheNextCallsOfAMethod) {
  server_->faults().RefuseNext("Publish", absl::UnavailableError("x"), 2);
  EXPECT_TRUE(CreateSubscription().ok());
  EXPECT_EQ(CodeOfPublish(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(CodeOfPublish(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(CodeOfPublish(), StatusCode::OK);
  server_->faults().RefuseNext("StreamingPull", absl::PermissionDeniedError("x"));
  EXPECT_EQ(Open()->Finish().error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Open()->Finish().error_code(), StatusCode::OK);
}

TEST_F(FaultsWire, TheSameSeedRefusesTheSameCalls) {
  FaultOptions faults;
  faults.refuse = 0.5;
  faults.refuse_method = "Publish";
  faults.refuse_status = absl::StatusCode::kInternal;
  const auto run = [&](int seed) {
    faults.seed = seed;
    server_->faults().Set(faults);
    std::vector<StatusCode> codes;
    for (int i = 0; i < 30; ++i) codes.push_back(CodeOfPublish());
    return codes;
  };
  const auto first = run(7);
  EXPECT_EQ(first, run(7));
  EXPECT_NE(first, run(8));
  EXPECT_THAT(first, ::testing::Contains(StatusCode::INTERNAL));
  EXPECT_THAT(first, ::testing::Contains(StatusCode::OK));
}

TEST_F(FaultsWire, DropsAcks) {
  ASSERT_TRUE(CreateSubscription().ok());
  Publish("a");
  FaultOptions faults;
  faults.drop_acks = 1;
  server_->faults().Set(faults);
  auto stream = Open(kSubscription, [](auto* r) { r->set_stream_ack_deadline_seconds(10); });
  stream->Ack(AckIdsOf(stream->Read(1)));
  EXPECT_TRUE(Acknowledge({"x"}).ok());
  clock_.Advance(seconds(10));
  EXPECT_THAT(DataOf(stream->Read(1)), ElementsAre("a"));
}

TEST_F(FaultsWire, DelaysAcks) {
  ASSERT_TRUE(CreateSubscription().ok());
  Publish("a");
  FaultOptions faults;
  faults.delay_acks = 1;
  faults.ack_delay = seconds(30);
  server_->faults().Set(faults);
  const auto first = PullNow();
  EXPECT_TRUE(Acknowledge(AckIdsOf(first)).ok());
  clock_.Advance(seconds(10));  // the lease ends before the ack takes effect
  auto stream = Open(kSubscription, [](auto* r) {
    r->set_stream_ack_deadline_seconds(600);
    r->set_max_outstanding_messages(1);
  });
  EXPECT_THAT(DataOf(stream->Read(1)), ElementsAre("a"));
  Publish("b");
  clock_.Advance(seconds(20));
  EXPECT_THAT(DataOf(stream->Read(1)), ElementsAre("b"));  // there is room: "a" is acked now
}

// Which the service rules out: so a test can show that somebody waits for acks before a Seek.
TEST_F(FaultsWire, ADelayedAckCountsAfterASeekToo) {
  ASSERT_TRUE(CreateSubscription().ok());
  Publish("a");
  FaultOptions faults;
  faults.delay_acks = 1;
  faults.ack_delay = seconds(1);
  server_->faults().Set(faults);
  EXPECT_TRUE(Acknowledge(AckIdsOf(PullNow())).ok());
  EXPECT_TRUE(SeekToTime(clock_.Now() - seconds(1)).ok());
  server_->faults().Set({});
  clock_.Advance(seconds(1));
  Publish("b");
  auto stream = Open(kSubscription, [](auto* r) { r->set_max_outstanding_messages(1); });
  auto next = stream->Read(1);
  // The ack lands in a moment, on the timekeeper's thread.
  while (DataOf(next)[0] == "a") {
    stream->Nack(next[0].ack_id());
    next = stream->Read(1);
  }
  EXPECT_THAT(DataOf(next), ElementsAre("b"));
}

TEST_F(FaultsWire, WithExactlyOnceADroppedAckIsATemporaryFailure) {
  ASSERT_TRUE(CreateSubscription([](auto* s) { s->set_enable_exactly_once_delivery(true); }).ok());
  Publish("a");
  FaultOptions faults;
  faults.drop_acks = 1;
  server_->faults().Set(faults);
  const auto ids = AckIdsOf(PullNow());
  EXPECT_EQ(Acknowledge(ids).error_code(), StatusCode::UNAVAILABLE);
  server_->faults().Set({});
  EXPECT_TRUE(Acknowledge(ids).ok());
}

TEST_F(FaultsWire, DuplicatesDeliveries) {
  ASSERT_TRUE(CreateSubscription().ok());
  FaultOptions faults;
  faults.duplicate = 1;
  server_->faults().Set(faults);
  Publish("a");
  auto stream = Open();
  const auto messages = stream->Read(2);
  EXPECT_THAT(DataOf(messages), ElementsAre("a", "a"));
  EXPECT_NE(messages[0].ack_id(), messages[1].ack_id());
  EXPECT_TRUE(Acknowledge({messages[1].ack_id()}).ok());  // either of them acks it
  server_->faults().Set({});
  EXPECT_TRUE(ModifyAckDeadline({messages[0].ack_id()}, 0).ok());
  EXPECT_THAT(PullNow(), IsEmpty());
}

TEST_F(FaultsWire, ClosesStreams) {
  ASSERT_TRUE(CreateSubscription().ok());
  auto stream = Open();
  Publish("a");
  stream->Read(1);
  server_->faults().CloseStreams(absl::UnavailableError("routine"));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::UNAVAILABLE);

  FaultOptions faults;
  faults.close_streams = 1;
  server_->faults().Set(faults);
  auto another = Open();
  Publish("b");
  // What it took comes first: a message that is leased and never sent would be overtaken by the
  // next one of its key.
  EXPECT_THAT(another->Read(1), SizeIs(1));
  pb::StreamingPullResponse response;
  EXPECT_FALSE(another->ReadResponse(&response));
  EXPECT_EQ(another->Finish().error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(FaultsWire, AFrozenServerAnswersWhenItThaws) {
  ASSERT_TRUE(CreateSubscription().ok());
  auto stream = Open();
  Publish("before");
  stream->Read(1);
  server_->faults().Freeze();
  auto published = std::async(std::launch::async, [this] { return CodeOfPublish(); });
  EXPECT_EQ(published.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  server_->faults().Thaw();
  EXPECT_EQ(published.get(), StatusCode::OK);
  EXPECT_THAT(DataOf(stream->Read(1)), ElementsAre("x"));
}

TEST_F(FaultsWire, StopsWhileFrozenWithStreamsOpen) {
  ASSERT_TRUE(CreateSubscription().ok());
  auto stream = Open();
  Publish("a");
  stream->Read(1);
  server_->faults().Freeze();
  server_->Stop();
  server_->Stop();
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::UNAVAILABLE);
}

TEST(Server, StopsBeforeItStarts) {
  Server server;
  server.Stop();
  EXPECT_FALSE(server.Start().ok());
}

TEST(Server, SaysThatAPortIsTaken) {
  Server first;
  ASSERT_TRUE(first.Start().ok());
  Options options;
  options.port = std::stoi(first.address().substr(first.address().find(':') + 1));
  Server second(options);
  const absl::Status status = second.Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(MessageOf(status).find(first.address()), std::string_view::npos);
}

TEST(Server, RefusesOptionsThatMakeNoSense) {
  Options options;
  options.port = 70'000;
  EXPECT_EQ(Server(options).Start().code(), absl::StatusCode::kInvalidArgument);
  options.port = 0;
  options.faults.drop_acks = 1.5;
  EXPECT_EQ(Server(options).Start().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Server, SeveralLiveInOneProcess) {
  Server first;
  Server second;
  ASSERT_TRUE(first.Start().ok());
  ASSERT_TRUE(second.Start().ok());
  EXPECT_NE(first.address(), second.address());
}

}  // namespace
}  // namespace lockstep::emulator
