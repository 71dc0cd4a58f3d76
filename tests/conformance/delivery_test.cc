#include <atomic>
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

TEST_P(Bus, HandsOverWhatWasPublished) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  pubsub::Message message = Text("the data");
  message.attributes = {{"colour", "blue"}, {"empty", ""}};
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  const WallTime before = std::chrono::system_clock::now() - std::chrono::seconds(5);
  const auto published = Publish(topic, {message});
  ASSERT_TRUE(published[0].ok()) << published[0].status();
  ASSERT_TRUE(sink.AwaitCount(1));
  const pubsub::Delivery delivery = sink.deliveries()[0];
  EXPECT_EQ(delivery.message.data, "the data");
  EXPECT_EQ(delivery.message.attributes, message.attributes);
  EXPECT_EQ(delivery.message_id, *published[0]);
  EXPECT_GT(delivery.publish_time, before);
  for (const absl::Status& status : Ack(*receiver, sink.tokens())) EXPECT_TRUE(status.ok());
}

TEST_P(Bus, KeepsTheOrderOfEveryKeyUnderLoad) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(Ordered());
  constexpr int kKeys = 20;
  constexpr int kEach = 100;
  pubsub::ReceiverOptions options;
  options.max_outstanding_messages = 100;
  const auto acking = ReceiveAndAck(subscription, options);
  PublishAll(topic, Sequences(kKeys, kEach));
  ASSERT_TRUE(acking->sink.AwaitCount(kKeys * kEach)) << acking->sink.count();
  for (const auto& [key, data] : acking->sink.by_key()) EXPECT_EQ(data, Numbers(kEach)) << key;
}

TEST_P(Bus, KeepsTheOrderOfEveryKeyOverSeveralStreams) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(Ordered());
  constexpr int kKeys = 20;
  constexpr int kEach = 50;
  pubsub::ReceiverOptions options;
  options.streams = 3;
  const auto acking = ReceiveAndAck(subscription, options);
  PublishAll(topic, Sequences(kKeys, kEach));
  ASSERT_TRUE(acking->sink.AwaitCount(kKeys * kEach)) << acking->sink.count();
  for (const auto& [key, data] : acking->sink.by_key()) EXPECT_EQ(data, Numbers(kEach)) << key;
}

TEST_P(Bus, TakesAcksInBulk) {
  NEEDS(receiving_again);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  constexpr int kCount = 3'000;
  pubsub::ReceiverOptions options;
  options.max_outstanding_messages = 2 * kCount;
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink, options);
  std::vector<pubsub::Message> messages;
  for (int i = 0; i < kCount; ++i) messages.push_back(Text(std::to_string(i)));
  PublishAll(topic, std::move(messages));
  ASSERT_TRUE(sink.AwaitCount(kCount)) << sink.count();
  const auto results = Ack(*receiver, sink.tokens());
  ASSERT_EQ(results.size(), sink.count());
  for (const absl::Status& status : results) ASSERT_TRUE(status.ok()) << status;
  receiver->Stop();
  // Nothing of it is left for the next: only what is published now comes.
  server().Advance(std::chrono::minutes(11));
  CollectingSink next;
  const auto second = Receive(subscription, next);
  PublishAll(topic, {Text("new")});
  ASSERT_TRUE(next.AwaitCount(1));
  EXPECT_EQ(next.data(), std::vector<std::string>{"new"});
}

TEST_P(Bus, BringsBackWhatIsReleasedInBulk) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  constexpr int kCount = 1'000;
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.max_outstanding_messages = 2 * kCount;
  const auto receiver = Receive(subscription, sink, options);
  std::vector<pubsub::Message> messages;
  for (int i = 0; i < kCount; ++i) messages.push_back(Text(std::to_string(i)));
  PublishAll(topic, std::move(messages));
  ASSERT_TRUE(sink.AwaitCount(kCount));
  for (const absl::Status& status : Nack(*receiver, sink.tokens())) ASSERT_TRUE(status.ok());
  ASSERT_TRUE(sink.AwaitCount(2 * kCount)) << sink.count();
  const auto data = sink.data();
  EXPECT_EQ(std::set<std::string>(data.begin() + kCount, data.end()).size(), size_t{kCount});
}

TEST_P(Bus, BringsBackAKeysQueueInOrderAfterItsRelease) {
  NEEDS(several_per_key);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(Ordered());
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  PublishAll(topic, Sequences(1, 5));
  ASSERT_TRUE(sink.AwaitCount(5));
  Nack(*receiver, sink.tokens());
  ASSERT_TRUE(sink.AwaitCount(10));
  auto data = sink.data();
  EXPECT_EQ(std::vector<std::string>(data.begin() + 5, data.begin() + 10), Numbers(5));
}

TEST_P(Bus, BringsBackEveryLaterMessageOfAKeyAfterANack) {
  NEEDS(cascade_on_nack);
  NEEDS(several_per_key);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(Ordered());
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  PublishAll(topic, Sequences(1, 5));
  ASSERT_TRUE(sink.AwaitCount(5));
  const auto tokens = sink.tokens();
  Ack(*receiver, {tokens[0]});
  Nack(*receiver, {tokens[2]});
  ASSERT_TRUE(sink.AwaitCount(8)) << sink.count();
  const auto data = sink.data();
  EXPECT_EQ(std::vector<std::string>(data.begin() + 5, data.end()),
            (std::vector<std::string>{"2", "3", "4"}));
}

TEST_P(Bus, SharesASubscriptionAmongReceiversAndKeepsKeysTogether) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(Ordered());
  const auto one = ReceiveAndAck(subscription);
  const auto other = ReceiveAndAck(subscription);
  const auto up = [](CollectingSink& sink) {
    return sink.Await([&] { return !sink.states().empty() && sink.states().back().ok(); });
  };
  ASSERT_TRUE(up(one->sink) && up(other->sink));
  constexpr int kKeys = 40;
  constexpr int kEach = 25;
  PublishAll(topic, Sequences(kKeys, kEach));
  ASSERT_TRUE(
      one->sink.Await([&] { return one->sink.count() + other->sink.count() >= kKeys * kEach; }));
  // A key may move from one to the other between two messages, never back in time.
  std::map<std::string, std::vector<std::string>> merged = one->sink.by_key();
  for (const auto& [key, data] : other->sink.by_key()) {
    std::vector<std::string> both;
    std::merge(merged[key].begin(), merged[key].end(), data.begin(), data.end(),
               std::back_inserter(both),
               [](const auto& a, const auto& b) { return std::stoi(a) < std::stoi(b); });
    merged[key] = both;
  }
  for (const auto& [key, data] : merged) EXPECT_EQ(data, Numbers(kEach)) << key;
}

TEST_P(Bus, StopsReadingWhileTooMuchIsInHand) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.max_outstanding_messages = 10;
  const auto receiver = Receive(subscription, sink, options);
  // One by one: a server that ignores the limits would put all of them in one response.
  for (size_t i = 0; i < 10; ++i) {
    PublishAll(topic, {Text(std::to_string(i))});
    ASSERT_TRUE(sink.AwaitCount(i + 1));
  }
  PublishAll(topic, std::vector<pubsub::Message>(40, Text("more")));
  EXPECT_FALSE(sink.AwaitCount(11, Millis(300))) << "it went on reading";
  size_t acked = 0;
  while (acked < 50) {
    ASSERT_TRUE(sink.AwaitCount(acked + 1)) << acked;
    const auto tokens = TokensOf(sink, acked);
    if (features().max_outstanding) {
      EXPECT_LE(tokens.size(), 10u);
    }
    acked += tokens.size();
    Ack(*receiver, tokens);
  }
  EXPECT_EQ(acked, 50u);
}

// The limit must hold by the client's own doing: not every server listens.
TEST_P(Bus, NeverHoldsMoreThanItMayWhateverTheServerSends) {
  NEEDS(faults);
  emulator::FaultOptions faults;
  faults.ignore_flow_control = true;
  server().faults()->Set(faults);
  struct Limits {
    int64_t messages;
    int64_t bytes;
  };
  for (const Limits& limits : {Limits{10, 1 << 30}, Limits{1'000, 10'000}}) {
    const std::string id = std::to_string(limits.messages);
    const std::string topic = MakeTopic(id);
    Subscription settings;
    settings.topic = topic;
    const std::string subscription = MakeSubscription(settings, id);
    constexpr size_t kInHand = 10;  // of 1,000 bytes each, both limits are reached with the tenth
    constexpr size_t kCount = 60;
    std::atomic<size_t> delivered = 0;
    std::atomic<size_t> acked = 0;
    std::atomic<size_t> most = 0;  // in hand when more was handed over
    CollectingSink sink;
    sink.on_batch = [&](const auto& batch) {
      most = std::max<size_t>(most, delivered - acked);
      delivered += batch.size();
    };
    pubsub::ReceiverOptions options;
    options.max_outstanding_messages = limits.messages;
    options.max_outstanding_bytes = limits.bytes;
    const auto receiver = Receive(subscription, sink, options);
    // One by one, so that each comes in a response of its own: all sixty are sent to the client.
    for (size_t i = 0; i < kCount; ++i) {
      PublishAll(topic, {Text(std::string(1'000, 'x'))});
      if (i < kInHand) {
        ASSERT_TRUE(sink.AwaitCount(i + 1)) << i;
      }
    }
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(sink.AwaitCount(i + 1)) << i;
      ++acked;
      Ack(*receiver, {sink.tokens()[i]});
    }
    EXPECT_LT(most, kInHand) << "it read on with that much in hand";
  }
}

// Nothing is acked: of each key all that comes must come to the one that has its first message.
TEST_P(Bus, SpreadsKeysOverReceiversAndLeavesEachWithOneOfThem) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(Ordered());
  constexpr int kKeys = 40;
  constexpr int kEach = 4;
  CollectingSink one;
  CollectingSink other;
  const auto other_transport = AnotherTransport();  // and connection
  const auto first = Receive(subscription, one);
  pubsub::ReceiverOptions options;
  options.subscription = subscription;
  const auto second = other_transport->NewReceiver(options, other);
  ASSERT_TRUE(second->Start().ok());
  const auto up = [](CollectingSink& sink) {
    return sink.Await([&] { return !sink.states().empty() && sink.states().back().ok(); });
  };
  ASSERT_TRUE(up(one) && up(other));
  const int expected = kKeys * (features().several_per_key ? kEach : 1);
  for (int round = 1; round <= kEach; ++round) {
    std::vector<pubsub::Message> messages;
    for (int key = 0; key < kKeys; ++key) {
      messages.push_back(Text(std::to_string(round), "k" + std::to_string(key)));
    }
    PublishAll(topic, std::move(messages));
    const auto count = static_cast<size_t>(std::min(kKeys * round, expected));
    ASSERT_TRUE(one.Await([&] { return one.count() + other.count() >= count; })) << round;
  }
  const auto here = one.by_key();
  const auto there = other.by_key();
  EXPECT_EQ(here.size() + there.size(), size_t{kKeys});
  for (const auto& [key, data] : here) EXPECT_FALSE(there.contains(key)) << key;
  EXPECT_EQ(one.count() + other.count(), static_cast<size_t>(expected));
  // Without word of the streams themselves, the second may not be there yet when it says so.
  if (!features().stream_ends_reported) return;
  EXPECT_GE(here.size(), size_t{kKeys / 10});
  EXPECT_GE(there.size(), size_t{kKeys / 10});
}

TEST_P(Bus, TellsTheServerTheClientIdOnEveryStream) {
  NEEDS(faults);
  NEEDS(client_id);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  pubsub::ReceiverOptions options;
  options.client_id = "instance-7";
  const auto acking = ReceiveAndAck(subscription, options);
  PublishAll(topic, {Text("first")});
  ASSERT_TRUE(acking->sink.AwaitCount(1));
  server().faults()->CloseStreams(absl::UnavailableError("routine"));
  PublishAll(topic, {Text("on the next stream")});
  ASSERT_TRUE(acking->sink.AwaitCount(2));
  const auto streams = server().faults()->Streams();
  ASSERT_EQ(streams.size(), 1u);
  EXPECT_TRUE(streams[0].client_id.starts_with("instance-7-")) << streams[0].client_id;
}

TEST_P(Bus, StopsReadingByBytesToo) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.max_outstanding_bytes = 100'000;
  const auto receiver = Receive(subscription, sink, options);
  for (int i = 0; i < 20; ++i) PublishAll(topic, {Text(std::string(40'000, 'x'))});
  ASSERT_TRUE(sink.AwaitCount(2));
  size_t acked = 0;
  while (acked < 20) {
    ASSERT_TRUE(sink.AwaitCount(acked + 1)) << acked;
    const auto tokens = TokensOf(sink, acked);
    if (features().max_outstanding) {
      EXPECT_LE(tokens.size(), 4u);
    }
    acked += tokens.size();
    Ack(*receiver, tokens);
  }
}

}  // namespace
}  // namespace lockstep::conformance
