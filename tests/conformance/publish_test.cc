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

TEST_P(Bus, CarriesTheAttributesOfGooglesClientsAndRefusesOthersThatBeginLikeThem) {
  const std::string topic = MakeTopic();
  const auto acking = ReceiveAndAck(MakeSubscription());
  pubsub::Message traced = Text("traced");
  traced.attributes["googclient_traceparent"] = "00-1-2-01";
  pubsub::Message reserved = Text("reserved");
  reserved.attributes["google"] = "x";
  const auto results = Publish(topic, {traced, reserved});
  EXPECT_TRUE(results[0].ok()) << results[0].status();
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(acking->sink.AwaitCount(1));
  EXPECT_EQ(acking->sink.deliveries()[0].message.attributes, traced.attributes);
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
  constexpr int kCalls = 10;
  constexpr int kEach = 3;
  // A call per key at a time: many requests, many of them refused.
  std::mutex mu;
  std::condition_variable changed;
  int answered = 0;
  int failed = 0;
  for (int call = 0; call < kCalls; ++call) {
    for (int key = 0; key < kKeys; ++key) {
      std::vector<pubsub::Message> messages;
      for (int i = call * kEach; i < (call + 1) * kEach; ++i) {
        messages.push_back(Text(std::to_string(i), "k" + std::to_string(key)));
      }
      publisher()->Publish(topic, std::move(messages), [&](const auto& results) {
        std::scoped_lock lock(mu);
        for (const auto& result : results) failed += result.ok() ? 0 : 1;
        ++answered;
        changed.notify_all();
      });
    }
    std::unique_lock lock(mu);
    changed.wait(lock, [&] { return answered == (call + 1) * kKeys; });
  }
  EXPECT_EQ(failed, 0);
  ASSERT_TRUE(acking->sink.AwaitCount(kKeys * kCalls * kEach));
  for (const auto& [key, data] : acking->sink.by_key()) {
    EXPECT_EQ(data, Numbers(kCalls * kEach)) << key;
  }
}

TEST_P(Bus, AbortsTheSuccessorsOfAMessageThatTheServerRefused) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  server().faults()->RefuseNext("Publish", absl::PermissionDeniedError("not you"));
  const std::string half(6'000'000, 'x');  // two requests
  const auto results = Publish(topic, {Text(half, "k"), Text(half, "k"), Text("small", "other")});
  EXPECT_EQ(results[0].status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(results[2].ok()) << results[2].status();
}

TEST_P(Bus, CancelsWhatIsUnderWayWhenThePublisherGoes) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  server().faults()->Freeze();
  auto publisher = transport().NewPublisher({});
  std::atomic<int> cancelled = 0;
  for (int i = 0; i < 3; ++i) {
    publisher->Publish(topic, {Text("x", "k" + std::to_string(i))}, [&](const auto& results) {
      if (results[0].status().code() == absl::StatusCode::kCancelled) ++cancelled;
    });
  }
  publisher.reset();
  EXPECT_EQ(cancelled, 3);
  server().faults()->Thaw();
}

}  // namespace
}  // namespace lockstep::conformance
