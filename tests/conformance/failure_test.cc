#include <set>

#include "emulator/service/server.h"
#include "tests/conformance/suite.h"
#include "tests/support/free_port.h"
#include "tests/support/service_stress.h"

namespace lockstep::conformance {
namespace {

using testing::CollectingSink;

TEST_P(Bus, KeepsTryingWithoutASubscriptionAndFindsItOnceItIsThere) {
  MakeTopic();
  CollectingSink sink;
  const auto receiver = Receive(SubscriptionNamed("sub"), sink);
  ASSERT_TRUE(sink.Await([&] { return !sink.states().empty(); }));
  EXPECT_EQ(sink.states().front().code(), absl::StatusCode::kNotFound);
  MakeSubscription();
  ASSERT_TRUE(sink.Await([&] { return sink.states().back().ok(); }));
}

TEST_P(Bus, ReconnectsAfterEveryKindOfEnd) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  const auto acking = ReceiveAndAck(subscription);
  const std::vector<absl::Status> ends = {
      absl::UnavailableError("routine"),    absl::OkStatus(),
      absl::CancelledError("gone"),         absl::DeadlineExceededError("late"),
      absl::InternalError("broken"),        absl::ResourceExhaustedError("too much"),
      absl::PermissionDeniedError("no"),    absl::AbortedError("abort"),
      absl::FailedPreconditionError("huh"), absl::UnknownError("who knows"),
  };
  size_t expected = 0;
  for (const absl::Status& end : ends) {
    const auto is_up = [&] {
      return !acking->sink.states().empty() && acking->sink.states().back().ok();
    };
    ASSERT_TRUE(acking->sink.Await(is_up)) << end;
    server().faults()->CloseStreams(end);
    if (features().stream_ends_reported) {
      ASSERT_TRUE(acking->sink.Await([&] { return !is_up(); })) << end;
    }
    ASSERT_TRUE(acking->sink.Await(is_up)) << end;
    PublishAll(topic, {Text("x")});
    ASSERT_TRUE(acking->sink.AwaitCount(++expected)) << end;
  }
}

TEST_P(Bus, LosesNothingWhenStreamsBreakAllTheTime) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  pubsub::Subscription settings;
  settings.ordering = true;
  const std::string subscription = MakeSubscription(settings);
  emulator::FaultOptions faults;
  faults.close_streams = 0.2;
  server().faults()->Set(faults);
  const auto acking = ReceiveAndAck(subscription);
  constexpr int kEach = 200;
  for (int i = 0; i < kEach; i += 10) {
    std::vector<pubsub::Message> messages;
    for (int k = i; k < i + 10; ++k) messages.push_back(Text(std::to_string(k), "key"));
    PublishAll(topic, std::move(messages));
  }
  // What a broken stream had in its pipe comes again after its deadline.
  const auto complete = [&] {
    const auto data = acking->sink.data();
    return std::set<std::string>(data.begin(), data.end()).size() == kEach;
  };
  for (int i = 0; i < 100 && !complete(); ++i) {
    if (acking->sink.Await(complete, Millis(200))) break;
    server().Advance(std::chrono::seconds(61));
  }
  EXPECT_TRUE(complete());
}

TEST_P(Bus, ComesUpWhenTheServerDoes) {
  NEEDS(faults);  // that is: a server that this test can start itself
  emulator::Options late;
  late.port = testing::FreePort();
  pubsub::TransportOptions options;
  options.kind = GetParam().transport;
  options.emulator_host = "127.0.0.1:" + std::to_string(late.port);
  auto transport = pubsub::MakeTransport(options);
  ASSERT_TRUE(transport.ok());
  CollectingSink sink;
  pubsub::ReceiverOptions receiver_options;
  receiver_options.subscription = SubscriptionNamed("sub");
  const auto receiver = (*transport)->NewReceiver(receiver_options, sink);
  ASSERT_TRUE(receiver->Start().ok());
  ASSERT_TRUE(sink.Await([&] { return !sink.states().empty(); }));
  const absl::Status refused = sink.states().front();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(refused.message()).find(options.emulator_host), std::string::npos)
      << refused;
  emulator::Server server(late);
  ASSERT_TRUE(server.Start().ok());
  pubsub::Topic topic;
  topic.name = TopicNamed("topic");
  ASSERT_TRUE((*transport)->admin().GetTopic(topic.name).status().code() ==
              absl::StatusCode::kNotFound);  // retried until it is up
  ASSERT_TRUE((*transport)->admin().CreateTopic(topic).ok());
  pubsub::Subscription subscription;
  subscription.name = receiver_options.subscription;
  subscription.topic = topic.name;
  ASSERT_TRUE((*transport)->admin().CreateSubscription(subscription).ok());
  EXPECT_TRUE(sink.Await([&] { return sink.states().back().ok(); }));
  receiver->Stop();
}

TEST_P(Bus, RetriesAcksThatTheServerRefusesForNow) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  pubsub::Subscription settings;
  settings.exactly_once = !features().plain_acks_retried;
  const std::string subscription = MakeSubscription(settings);
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.ack_timeout = Millis(30'000);  // google-cloud-cpp begins with a pause of a second
  const auto receiver = Receive(subscription, sink, options);
  PublishAll(topic, {Text("x")});
  ASSERT_TRUE(sink.AwaitCount(1));
  server().faults()->RefuseNext("Acknowledge", absl::UnavailableError("later"),
                                features().plain_acks_retried ? 3 : 1);
  EXPECT_TRUE(Ack(*receiver, sink.tokens())[0].ok());
}

TEST_P(Bus, GivesAnAckUpAfterItsTimeout) {
  NEEDS(faults);
  const std::string topic = MakeTopic();
  pubsub::Subscription settings;
  settings.exactly_once = !features().plain_acks_retried;
  const std::string subscription = MakeSubscription(settings);
  CollectingSink sink;
  pubsub::ReceiverOptions options;
  options.ack_timeout = Millis(300);
  const auto receiver = Receive(subscription, sink, options);
  PublishAll(topic, {Text("x")});
  ASSERT_TRUE(sink.AwaitCount(1));
  server().faults()->RefuseNext("Acknowledge", absl::UnavailableError("never"), 1'000'000);
  EXPECT_EQ(Ack(*receiver, sink.tokens())[0].code(), absl::StatusCode::kDeadlineExceeded);
  if (!features().plain_acks_retried) return;
  EXPECT_TRUE(sink.AwaitCount(2));  // released: it was not acked, and will not be
}

TEST_P(Bus, ReceiversStartOnceAndStopAtAnyTime) {
  MakeTopic();
  const std::string subscription = MakeSubscription();
  CollectingSink sink;
  testing::StressService(
      [&] {
        pubsub::ReceiverOptions options;
        options.subscription = subscription;
        return std::unique_ptr<Service>(transport().NewReceiver(options, sink));
      },
      nullptr, 5);
}

TEST_P(Bus, CallsNoSinkAfterStop) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  for (int round = 0; round < 3; ++round) {
    const auto acking = ReceiveAndAck(subscription);
    std::vector<pubsub::Message> messages(500, Text("x"));
    PublishAll(topic, std::move(messages));
    ASSERT_TRUE(acking->sink.AwaitCount(1));
    acking->receiver->Stop();
    const size_t count = acking->sink.count();
    const size_t states = acking->sink.states().size();
    PublishAll(topic, {Text("later")});
    EXPECT_EQ(acking->sink.count(), count);
    EXPECT_EQ(acking->sink.states().size(), states);
  }
}

TEST_P(Bus, KeepsLeasesAndTakesAcksAfterItStoppedPulling) {
  NEEDS(receiving_again);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  PublishAll(topic, {Text("in hand")});
  ASSERT_TRUE(sink.AwaitCount(1));
  receiver->StopPulling();
  receiver->StopPulling();
  PublishAll(topic, {Text("for others")});
  EXPECT_TRUE(Ack(*receiver, sink.tokens())[0].ok());
  receiver->Stop();
  EXPECT_EQ(Ack(*receiver, sink.tokens())[0].code(), absl::StatusCode::kCancelled);
  if (!features().stops_cleanly) server().Advance(std::chrono::minutes(11));  // a lease ends
  CollectingSink next;
  const auto second = Receive(subscription, next);
  ASSERT_TRUE(next.AwaitCount(1));
  EXPECT_EQ(next.data()[0], "for others");
}

TEST_P(Bus, HangsUpOnAServerThatAnswersNoMore) {
  NEEDS(faults);
  NEEDS(stream_ends_reported);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  pubsub::ReceiverOptions options;
  options.keepalive = Millis(500);  // a busy machine must find the time to answer within half of it
  const auto acking = ReceiveAndAck(subscription, options);
  CollectingSink& sink = acking->sink;
  ASSERT_TRUE(sink.Await([&] { return !sink.states().empty() && sink.states().back().ok(); }));
  const auto noticed = [&] { return !sink.states().back().ok(); };
  // A server that has answered no ping yet is not held to it: then it takes another turn.
  size_t count = 0;
  bool hung_up = false;
  while (!hung_up && count < 10) {
    PublishAll(topic, {Text("x")});
    ASSERT_TRUE(sink.AwaitCount(++count));
    server().faults()->Freeze();
    hung_up = sink.Await(noticed, Millis(5'000));
    server().faults()->Thaw();
  }
  EXPECT_TRUE(hung_up);
  PublishAll(topic, {Text("y")});
  EXPECT_TRUE(sink.AwaitCount(count + 1));
}

}  // namespace
}  // namespace lockstep::conformance
