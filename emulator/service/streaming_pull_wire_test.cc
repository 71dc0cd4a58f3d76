// StreamingPull, Pull and acks, over the wire.
#include <gmock/gmock.h>

#include "emulator/testing/wire_fixture.h"

namespace lockstep::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// protocol_version (field 10) = 1, by its bytes: an older declaration lacks the field.
constexpr char kWithPings[] = "\x50\x01";

class StreamingPullWire : public WireTest {
 protected:
  void SetUp() override {
    WireTest::SetUp();
    ASSERT_TRUE(CreateTopic().ok());
  }
  void Ordered(pb::Subscription* request) { request->set_enable_message_ordering(true); }
};

TEST_F(StreamingPullWire, DeliversWhatWasPublishedWithIdTimeKeyAndAttributes) {
  ASSERT_TRUE(CreateSubscription().ok());
  const std::string id = Publish("hello", "key", {{"a", "1"}});
  const auto messages = Open()->Read(1);
  ASSERT_THAT(messages, SizeIs(1));
  const pb::PubsubMessage& message = messages[0].message();
  EXPECT_EQ(message.data(), "hello");
  EXPECT_EQ(message.message_id(), id);
  EXPECT_EQ(message.ordering_key(), "key");
  EXPECT_EQ(message.attributes().at("a"), "1");
  EXPECT_GT(message.publish_time().seconds(), 1'600'000'000);
  EXPECT_EQ(messages[0].delivery_attempt(), 0);
}

TEST_F(StreamingPullWire, WakesAStreamThatWaits) {
  ASSERT_TRUE(CreateSubscription().ok());
  auto stream = Open();
  Publish("first");
  EXPECT_THAT(DataOf(stream->Read(1)), ElementsAre("first"));
  Publish("second");
  EXPECT_THAT(DataOf(stream->Read(1)), ElementsAre("second"));
}

TEST_F(StreamingPullWire, KeepsTheOrderOfAKey) {
  ASSERT_TRUE(CreateSubscription([this](auto* request) { Ordered(request); }).ok());
  for (int i = 0; i < 5; ++i) Publish(std::to_string(i), "key");
  EXPECT_THAT(DataOf(Open()->Read(5)), ElementsAre("0", "1", "2", "3", "4"));
}

TEST_F(StreamingPullWire, ANackBringsBackEveryLaterMessageOfTheKeyAckedOnesToo) {
  ASSERT_TRUE(CreateSubscription([this](auto* request) { Ordered(request); }).ok());
  for (int i = 0; i < 4; ++i) Publish(std::to_string(i), "key");
  auto stream = Open();
  const auto first = stream->Read(4);
  stream->Ack({first[0].ack_id(), first[3].ack_id()});
  stream->Nack(first[1].ack_id());
  EXPECT_THAT(DataOf(stream->Read(3)), ElementsAre("1", "2", "3"));
}

TEST_F(StreamingPullWire, AnAckedMessageDoesNotComeBack) {
  ASSERT_TRUE(CreateSubscription().ok());
  Publish("a");
  Publish("b");
  const auto messages = PullNow();
  ASSERT_THAT(messages, SizeIs(2));
  EXPECT_TRUE(Acknowledge({messages[0].ack_id()}).ok());
  EXPECT_TRUE(ModifyAckDeadline({messages[1].ack_id()}, 0).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("b"));
}

TEST_F(StreamingPullWire, HonoursMaxOutstandingMessages) {
  ASSERT_TRUE(CreateSubscription().ok());
  for (int i = 0; i < 5; ++i) Publish(std::to_string(i));
  auto stream = Open(kSubscription, [](auto* first) { first->set_max_outstanding_messages(2); });
  pb::StreamingPullResponse response;
  ASSERT_TRUE(stream->ReadResponse(&response));
  ASSERT_EQ(response.received_messages_size(), 2);
  EXPECT_THAT(PullNow(1), SizeIs(1));  // the others are there, but not for that stream
  stream->Ack({response.received_messages(0).ack_id()});
  ASSERT_TRUE(stream->ReadResponse(&response));
  EXPECT_EQ(response.received_messages_size(), 1);
}

TEST_F(StreamingPullWire, SeekToATimeBringsAckedMessagesBackOnAnOrderedSubscription) {
  ASSERT_TRUE(CreateSubscription([this](auto* request) {
                Ordered(request);
                request->set_retain_acked_messages(true);
              }).ok());
  const WallTime before = Clock::System().Now();
  for (int i = 0; i < 3; ++i) Publish(std::to_string(i), "key");
  EXPECT_TRUE(Acknowledge(AckIdsOf(PullNow())).ok());
  EXPECT_THAT(PullNow(), IsEmpty());
  EXPECT_TRUE(SeekToTime(before).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("0", "1", "2"));
  EXPECT_TRUE(SeekToTime(Clock::System().Now() + std::chrono::hours(1)).ok());
  EXPECT_THAT(PullNow(), IsEmpty());
}

TEST_F(StreamingPullWire, AnswersTheEmptyRequestsOfAClientThatPings) {
  ASSERT_TRUE(CreateSubscription().ok());
  auto pinging = Open(kSubscription, [](auto* first) { first->MergeFromString(kWithPings); });
  pb::StreamingPullResponse response;
  for (int i = 0; i < 3; ++i) {
    pinging->Write({});
    ASSERT_TRUE(pinging->ReadResponse(&response));
    EXPECT_EQ(response.received_messages_size(), 0);
  }
  pb::StreamingPullRequest again;
  again.MergeFromString(kWithPings);
  pinging->Write(again);
  EXPECT_EQ(pinging->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // One that did not say so gets messages only.
  auto silent = Open();
  silent->Write({});
  Publish("first");
  ASSERT_TRUE(silent->ReadResponse(&response));
  EXPECT_EQ(response.received_messages_size(), 1);
}

}  // namespace
}  // namespace lockstep::emulator
