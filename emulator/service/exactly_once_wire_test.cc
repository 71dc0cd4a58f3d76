// Exactly-once delivery and dead letters, over the wire.
#include <gmock/gmock.h>

#include "emulator/testing/wire_fixture.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/support/fake_clock.h"

namespace lockstep::emulator {
namespace {

using grpc::StatusCode;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

std::map<std::string, std::string> FailuresOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::ErrorInfo info;
  EXPECT_EQ(details.details_size(), 1);
  EXPECT_TRUE(details.details(0).UnpackTo(&info));
  return {info.metadata().begin(), info.metadata().end()};
}

class ExactlyOnceWire : public WireTest {
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
  void Subscribe(bool ordered) {
    ASSERT_TRUE(CreateSubscription([ordered](auto* s) {
                  s->set_enable_exactly_once_delivery(true);
                  s->set_enable_message_ordering(ordered);
                }).ok());
  }
  // The next response that holds messages.
  static std::vector<pb::ReceivedMessage> ReadMessages(TestStream* stream) {
    pb::StreamingPullResponse response;
    while (stream->ReadResponse(&response) && response.received_messages().empty()) {
    }
    return {response.received_messages().begin(), response.received_messages().end()};
  }

  testing::FakeClock clock_;
};

TEST_F(ExactlyOnceWire, TheStreamSaysWhatTheSubscriptionIs) {
  Subscribe(true);
  auto stream = Open();
  pb::StreamingPullResponse response;
  ASSERT_TRUE(stream->ReadResponse(&response));
  EXPECT_TRUE(response.subscription_properties().exactly_once_delivery_enabled());
  EXPECT_TRUE(response.subscription_properties().message_ordering_enabled());
}

TEST_F(ExactlyOnceWire, AStaleAckIdIsRefusedAndNamed) {
  Subscribe(false);
  Publish("a");
  Publish("b");
  const auto old = PullNow();
  clock_.Advance(seconds(10));
  const auto fresh = Open()->Read(2);
  const grpc::Status status = Acknowledge({old[0].ack_id(), fresh[1].ack_id(), "nonsense"});
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(FailuresOf(status),
              UnorderedElementsAre(Pair(old[0].ack_id(), "PERMANENT_FAILURE_INVALID_ACK_ID"),
                                   Pair("nonsense", "PERMANENT_FAILURE_INVALID_ACK_ID")));
  EXPECT_EQ(ModifyAckDeadline({old[0].ack_id()}, 30).error_code(), StatusCode::INVALID_ARGUMENT);
  // The valid one in the refused request counted: only the other comes back.
  EXPECT_TRUE(ModifyAckDeadline({fresh[0].ack_id()}, 0).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre(fresh[0].message().data()));
}

TEST_F(ExactlyOnceWire, TheStreamConfirmsAcksAndDeadlines) {
  Subscribe(false);
  Publish("a");
  auto stream = Open();
  const auto messages = ReadMessages(stream.get());
  ASSERT_THAT(messages, SizeIs(1));
  pb::StreamingPullRequest request;
  request.add_modify_deadline_ack_ids(messages[0].ack_id());
  request.add_modify_deadline_seconds(60);
  request.add_modify_deadline_ack_ids("nonsense");
  request.add_modify_deadline_seconds(60);
  request.add_ack_ids(messages[0].ack_id());
  request.add_ack_ids("more nonsense");
  stream->Write(request);
  pb::StreamingPullResponse response;
  ASSERT_TRUE(stream->ReadResponse(&response));
  const auto& changed = response.modify_ack_deadline_confirmation();
  EXPECT_THAT(changed.ack_ids(), ElementsAre(messages[0].ack_id()));
  EXPECT_THAT(changed.invalid_ack_ids(), ElementsAre("nonsense"));
  const auto& acked = response.acknowledge_confirmation();
  EXPECT_THAT(acked.ack_ids(), ElementsAre(messages[0].ack_id()));
  EXPECT_THAT(acked.invalid_ack_ids(), ElementsAre("more nonsense"));
}

TEST_F(ExactlyOnceWire, OrderedAcksOutOfOrderAreToBeRetried) {
  Subscribe(true);
  Publish("a", "key");
  Publish("b", "key");
  const auto messages = PullNow();
  const grpc::Status status = Acknowledge({messages[1].ack_id()});
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(FailuresOf(status),
              ElementsAre(Pair(messages[1].ack_id(), "TRANSIENT_FAILURE_UNORDERED_ACK_ID")));
  EXPECT_TRUE(Acknowledge({messages[1].ack_id(), messages[0].ack_id()}).ok());
}

TEST_F(ExactlyOnceWire, WithoutItNothingIsConfirmedAndNothingRefused) {
  ASSERT_TRUE(CreateSubscription().ok());
  Publish("a");
  auto stream = Open();
  const auto messages = stream->Read(1);
  stream->Ack({messages[0].ack_id(), "nonsense"});
  Publish("b");
  pb::StreamingPullResponse response;
  ASSERT_TRUE(stream->ReadResponse(&response));
  EXPECT_FALSE(response.has_acknowledge_confirmation());
  EXPECT_FALSE(response.subscription_properties().exactly_once_delivery_enabled());
}

TEST_F(ExactlyOnceWire, DeadLettersCarryWhereTheyCameFrom) {
  const std::string dead_topic = "projects/test/topics/dead";
  const std::string dead_subscription = "projects/test/subscriptions/dead";
  ASSERT_TRUE(CreateTopic(dead_topic).ok());
  ASSERT_TRUE(CreateSubscription([&](auto* s) {
                s->set_name(dead_subscription);
                s->set_topic(dead_topic);
              }).ok());
  ASSERT_TRUE(CreateSubscription([&](auto* s) {
                s->mutable_dead_letter_policy()->set_dead_letter_topic(dead_topic);
              }).ok());
  Publish("poison", "key", {{"mine", "kept"}});
  auto stream = Open();
  for (int attempt = 1; attempt <= 5; ++attempt) {
    const auto messages = stream->Read(1);
    EXPECT_EQ(messages[0].delivery_attempt(), attempt);
    stream->Nack(messages[0].ack_id());
  }
  const auto dead = Open(dead_subscription)->Read(1);
  ASSERT_THAT(dead, SizeIs(1));
  const pb::PubsubMessage& message = dead[0].message();
  EXPECT_EQ(message.data(), "poison");
  EXPECT_EQ(message.ordering_key(), "key");
  EXPECT_EQ(message.attributes().at("mine"), "kept");
  EXPECT_EQ(message.attributes().at("CloudPubSubDeadLetterSourceDeliveryCount"), "5");
  EXPECT_EQ(message.attributes().at("CloudPubSubDeadLetterSourceSubscription"), "service");
  EXPECT_EQ(message.attributes().at("CloudPubSubDeadLetterSourceSubscriptionProject"), "test");
  EXPECT_EQ(message.attributes().at("CloudPubSubDeadLetterSourceTopicPublishTime").substr(0, 10),
            "2023-11-14");
}

TEST_F(ExactlyOnceWire, TheStreamSaysWhenTheSubscriptionChanges) {
  ASSERT_TRUE(CreateSubscription().ok());
  auto stream = Open();
  Publish("a");
  pb::StreamingPullResponse response;
  ASSERT_TRUE(stream->ReadResponse(&response));
  EXPECT_FALSE(response.subscription_properties().exactly_once_delivery_enabled());
  pb::UpdateSubscriptionRequest update;
  update.mutable_subscription()->set_name(kSubscription);
  update.mutable_subscription()->set_enable_exactly_once_delivery(true);
  update.mutable_update_mask()->add_paths("enable_exactly_once_delivery");
  pb::Subscription updated;
  ASSERT_TRUE(
      Call(subscriber_.get(), &pb::Subscriber::Stub::UpdateSubscription, update, &updated).ok());
  Publish("b");
  ASSERT_TRUE(stream->ReadResponse(&response));
  EXPECT_TRUE(response.subscription_properties().exactly_once_delivery_enabled());
}

}  // namespace
}  // namespace lockstep::emulator
