#include <set>

#include "tests/conformance/suite.h"

namespace lockstep::conformance {
namespace {

using pubsub::Subscription;
using testing::CollectingSink;

Subscription Ordered() {
  Subscription settings;
  settings.ordering = true;
  return settings;
}

TEST_P(Bus, SplitsACallByTheLimitsOfARequest) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  std::vector<pubsub::Message> messages;
  for (int i = 0; i < 2'500; ++i) messages.push_back(Text("small"));
  for (int i = 0; i < 4; ++i) messages.push_back(Text(std::string(4'000'000, 'x')));
  const auto results = Publish(topic, std::move(messages));
  std::set<std::string> ids;
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << result.status();
    ids.insert(result->value());
  }
  EXPECT_EQ(ids.size(), 2'504u);
  const auto acking = ReceiveAndAck(subscription);
  EXPECT_TRUE(acking->sink.AwaitCount(2'504)) << acking->sink.count();
}

TEST_P(Bus, CarriesTheLargestMessage) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  PublishAll(topic, {Text(std::string(9'900'000, 'x'))});
  const auto acking = ReceiveAndAck(subscription);
  ASSERT_TRUE(acking->sink.AwaitCount(1));
  EXPECT_EQ(acking->sink.data()[0].size(), 9'900'000u);
}

TEST_P(Bus, FailsOnlyTheMessageThatIsTooLarge) {
  const std::string topic = MakeTopic();
  pubsub::Message attributes = Text("x");
  attributes.attributes["long"] = std::string(pubsub::kMaxAttributeValueBytes + 1, 'x');
  const auto results =
      Publish(topic, {Text("fine"), Text(std::string(pubsub::kMaxMessageBytes + 1, 'x')),
                      attributes, Text("fine too")});
  EXPECT_TRUE(results[0].ok());
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(results[2].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(results[3].ok());
}

TEST_P(Bus, FailsEveryMessageToATopicThatIsNotThere) {
  const auto results = Publish(TopicNamed("nowhere"), {Text("a", "k"), Text("b", "k")});
  for (const auto& result : results) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound) << result.status();
  }
}

TEST_P(Bus, KeepsOtherTopicsGoingWhileOneFails) {
  const std::string topic = MakeTopic();
  EXPECT_FALSE(Publish(TopicNamed("nowhere"), {Text("a")})[0].ok());
  PublishAll(topic, {Text("a")});
}

TEST_P(Bus, KeepsTheOrderThroughRetriesOfPublishes) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(Ordered());
  const auto acking = ReceiveAndAck(subscription);
  emulator::FaultOptions faults;
  faults.refuse = 0.4;
  faults.refuse_method = "Publish";
  server().faults()->Set(faults);
  constexpr int kKeys = 10;
  constexpr int kEach = 30;
  // One call per round, none waited for: many requests, many of them refused.
  std::mutex mu;
  std::condition_variable changed;
  int answered = 0;
  int failed = 0;
  for (int i = 0; i < kEach; ++i) {
    std::vector<pubsub::Message> round;
    for (int key = 0; key < kKeys; ++key) {
      round.push_back(Text(std::to_string(i), "k" + std::to_string(key)));
    }
    publisher()->Publish(topic, std::move(round), [&](const auto& results) {
      std::scoped_lock lock(mu);
      for (const auto& result : results) failed += result.ok() ? 0 : 1;
      ++answered;
      changed.notify_all();
    });
  }
  {
    std::unique_lock lock(mu);
    changed.wait(lock, [&] { return answered == kEach; });
  }
  EXPECT_EQ(failed, 0);
  ASSERT_TRUE(acking->sink.AwaitCount(kKeys * kEach));
  for (const auto& [key, data] : acking->sink.by_key()) EXPECT_EQ(data, Numbers(kEach)) << key;
}

TEST_P(Bus, AbortsTheSuccessorsOfAMessageThatTheServerRefused) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  server().faults()->Freeze();  // so that both calls are accepted before the first is answered
  server().faults()->RefuseNext("Publish", absl::PermissionDeniedError("not you"));
  std::mutex mu;
  std::condition_variable changed;
  std::vector<absl::StatusCode> codes;
  for (const char* data : {"first", "second"}) {
    publisher()->Publish(topic, {Text(data, "k")}, [&](const auto& results) {
      std::scoped_lock lock(mu);
      codes.push_back(results[0].status().code());
      changed.notify_all();
    });
  }
  server().faults()->Thaw();
  std::unique_lock lock(mu);
  changed.wait(lock, [&] { return codes.size() == 2; });
  EXPECT_EQ(codes, (std::vector{absl::StatusCode::kPermissionDenied, absl::StatusCode::kAborted}));
}

TEST_P(Bus, CancelsWhatIsUnderWayWhenThePublisherGoes) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  server().faults()->Freeze();
  auto publisher = transport().NewPublisher({});
  std::atomic<int> cancelled = 0;
  for (int i = 0; i < 3; ++i) {
    publisher->Publish(topic, {Text("x", "k")}, [&](const auto& results) {
      if (results[0].status().code() == absl::StatusCode::kCancelled) ++cancelled;
    });
  }
  publisher.reset();
  EXPECT_EQ(cancelled, 3);
  server().faults()->Thaw();
}

}  // namespace
}  // namespace lockstep::conformance
