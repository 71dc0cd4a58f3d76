#include "tests/conformance/suite.h"

namespace lockstep::conformance {
namespace {

using testing::CollectingSink;

pubsub::Subscription ExactlyOnce(bool ordered = false) {
  pubsub::Subscription settings;
  settings.exactly_once = true;
  settings.ordering = ordered;
  return settings;
}

TEST_P(Bus, TellsWhichAcksHoldWithExactlyOnceDelivery) {
  NEEDS(exactly_once_results);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(ExactlyOnce());
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  PublishAll(topic, {Text("a"), Text("b"), Text("c")});
  ASSERT_TRUE(sink.AwaitCount(3));
  const auto tokens = sink.tokens();
  EXPECT_TRUE(Nack(*receiver, {tokens[1]})[0].ok());
  ASSERT_TRUE(sink.AwaitCount(4));  // the nacked one has a new token: the old is of no use
  const auto results = Ack(*receiver, tokens);
  EXPECT_TRUE(results[0].ok()) << results[0];
  EXPECT_EQ(results[1].code(), absl::StatusCode::kFailedPrecondition) << results[1];
  EXPECT_TRUE(results[2].ok()) << results[2];
  EXPECT_TRUE(Ack(*receiver, TokensOf(sink, 3))[0].ok());
}

TEST_P(Bus, AcksInBulkInOrderWithExactlyOnceDelivery) {
  NEEDS(several_per_key);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(ExactlyOnce(true));
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  PublishAll(topic, Sequences(5, 100));
  ASSERT_TRUE(sink.AwaitCount(500));
  for (const auto& [key, data] : sink.by_key()) EXPECT_EQ(data, Numbers(100)) << key;
  for (const absl::Status& status : Ack(*receiver, sink.tokens())) {
    ASSERT_TRUE(status.ok()) << status;
  }
}

TEST_P(Bus, AcksAsTheyComeHoldInOrderWithExactlyOnceDelivery) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(ExactlyOnce(true));
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  PublishAll(topic, Sequences(5, 50));
  for (size_t acked = 0; acked < 250;) {
    ASSERT_TRUE(sink.AwaitCount(acked + 1)) << acked;
    const auto tokens = TokensOf(sink, acked);
    acked += tokens.size();
    for (const absl::Status& status : Ack(*receiver, tokens)) ASSERT_TRUE(status.ok()) << status;
  }
  for (const auto& [key, data] : sink.by_key()) EXPECT_EQ(data, Numbers(50)) << key;
}

TEST_P(Bus, AnAckAfterTheLeaseIsAFailureWithExactlyOnceDelivery) {
  NEEDS(exactly_once_results);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(ExactlyOnce());
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.ack_deadline = Millis(10'000);
  options.max_extension = Millis(300);
  const auto receiver = Receive(subscription, sink, options);
  PublishAll(topic, {Text("late")});
  ASSERT_TRUE(sink.AwaitCount(1));
  const auto late = sink.tokens();
  ASSERT_TRUE(sink.Await([&] { return !sink.lost().empty(); }));
  server().Advance(std::chrono::seconds(61));
  ASSERT_TRUE(sink.AwaitCount(2, Millis(75'000)));
  EXPECT_EQ(Ack(*receiver, late)[0].code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(Bus, UnknownTokensAreHarmlessWithoutExactlyOnceDelivery) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  PublishAll(topic, {Text("a")});
  ASSERT_TRUE(sink.AwaitCount(1));
  EXPECT_TRUE(Ack(*receiver, sink.tokens())[0].ok());
  EXPECT_TRUE(Ack(*receiver, sink.tokens())[0].ok());  // twice: of no effect, no error
}

TEST_P(Bus, NamesEachOfThousandsOfRefusedAcks) {
  NEEDS(exactly_once_results);
  NEEDS(clock_moves);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(ExactlyOnce());
  constexpr size_t kCount = 4'000;
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.max_outstanding_messages = 3 * kCount;
  options.ack_timeout = Millis(60'000);  // google-cloud-cpp sends them one by one
  const auto receiver = Receive(subscription, sink, options);
  PublishAll(topic, std::vector<pubsub::Message>(kCount, Text("x")));
  ASSERT_TRUE(sink.AwaitCount(kCount)) << sink.count();
  server().Advance(std::chrono::minutes(11));  // every lease lapses, and the client can't know
  ASSERT_TRUE(sink.AwaitCount(2 * kCount)) << sink.count();
  // In one go, stale and good ones side by side.
  const auto all = sink.tokens();
  std::vector<pubsub::AckToken> mixed;
  for (size_t i = 0; i < kCount; ++i) {
    mixed.push_back(all[i]);
    mixed.push_back(all[kCount + i]);
  }
  const auto results = Ack(*receiver, mixed);
  ASSERT_EQ(results.size(), 2 * kCount);
  for (size_t i = 0; i < results.size(); i += 2) {
    ASSERT_EQ(results[i].code(), absl::StatusCode::kFailedPrecondition) << i << results[i];
    ASSERT_TRUE(results[i + 1].ok()) << i << results[i + 1];
  }
}

TEST_P(Bus, ConfirmsALeaseBeforeTheHandOverWithExactlyOnceDelivery) {
  NEEDS(faults);
  NEEDS(receipts);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(ExactlyOnce());
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  ASSERT_TRUE(sink.Await([&] { return !sink.states().empty() && sink.states().back().ok(); }));
  // Meets the confirmation. It names no id, so the message is handed over nevertheless.
  server().faults()->RefuseNext("ModifyAckDeadline", absl::PermissionDeniedError("once"));
  PublishAll(topic, {Text("a")});
  ASSERT_TRUE(sink.AwaitCount(1));
  // And so this request, the next of its kind, meets nothing.
  EXPECT_TRUE(Nack(*receiver, sink.tokens())[0].ok());
  ASSERT_TRUE(sink.AwaitCount(2));
  EXPECT_TRUE(Ack(*receiver, TokensOf(sink, 1))[0].ok());
}

}  // namespace
}  // namespace lockstep::conformance
