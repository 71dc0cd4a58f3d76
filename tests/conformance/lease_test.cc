#include "tests/conformance/suite.h"

namespace lockstep::conformance {
namespace {

using testing::CollectingSink;

TEST_P(Bus, ReportsALeaseThatIsNoLongerExtendedAndTheMessageComesAgain) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.ack_deadline = Millis(10'000);
  options.max_extension = Millis(300);
  const auto receiver = Receive(subscription, sink, options);
  PublishAll(topic, {Text("once more")});
  ASSERT_TRUE(sink.AwaitCount(1));
  ASSERT_TRUE(sink.Await([&] { return !sink.lost().empty(); }));
  EXPECT_EQ(sink.lost(), sink.tokens());
  EXPECT_EQ(sink.count(), 1u);  // the server has not let go of it yet
  server().Advance(std::chrono::seconds(11));
  ASSERT_TRUE(sink.AwaitCount(2));
  EXPECT_EQ(sink.data()[1], "once more");
  EXPECT_NE(sink.tokens()[0], sink.tokens()[1]);
}

TEST_P(Bus, BringsBackAKeyInOrderWhenItsLeasesLapse) {
  NEEDS(cascade_on_nack);
  NEEDS(several_per_key);
  const std::string topic = MakeTopic();
  pubsub::Subscription settings;
  settings.ordering = true;
  const std::string subscription = MakeSubscription(settings);
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.ack_deadline = Millis(10'000);
  options.max_extension = Millis(300);
  const auto receiver = Receive(subscription, sink, options);
  PublishAll(topic, Sequences(1, 4));
  ASSERT_TRUE(sink.AwaitCount(4));
  Ack(*receiver, {sink.tokens()[0]});
  ASSERT_TRUE(sink.Await([&] { return sink.lost().size() == 3; }));
  server().Advance(std::chrono::seconds(11));
  ASSERT_TRUE(sink.AwaitCount(7));
  const auto data = sink.data();
  EXPECT_EQ(std::vector<std::string>(data.begin() + 4, data.begin() + 7),
            (std::vector<std::string>{"1", "2", "3"}));
}

// Takes as long as a lease does: the shortest that there is has ten seconds.
TEST_P(Bus, ExtendsLeasesBeyondTheAckDeadline) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.ack_deadline = Millis(10'000);
  const auto receiver = Receive(subscription, sink, options);
  PublishAll(topic, {Text("held")});
  ASSERT_TRUE(sink.AwaitCount(1));
  EXPECT_FALSE(sink.AwaitCount(2, Millis(12'500))) << "the lease lapsed";
  EXPECT_TRUE(sink.lost().empty());
  EXPECT_TRUE(Ack(*receiver, sink.tokens())[0].ok());
}

TEST_P(Bus, ExtendsLeasesWhileThereIsNoStream) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.ack_deadline = Millis(10'000);
  const auto receiver = Receive(subscription, sink, options);
  PublishAll(topic, {Text("held")});
  ASSERT_TRUE(sink.AwaitCount(1));
  server().faults()->RefuseNext("StreamingPull", absl::UnavailableError("no streams today"),
                                1'000'000);
  server().faults()->CloseStreams(absl::UnavailableError("closed by the test"));
  if (features().stream_ends_reported) {
    ASSERT_TRUE(sink.Await([&] { return !sink.states().back().ok(); }));
  }
  EXPECT_FALSE(sink.Await([&] { return !sink.lost().empty(); }, Millis(12'500)));
  EXPECT_TRUE(Ack(*receiver, sink.tokens())[0].ok());
}

}  // namespace
}  // namespace lockstep::conformance
