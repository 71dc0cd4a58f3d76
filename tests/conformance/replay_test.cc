#include "tests/conformance/suite.h"

namespace lockstep::conformance {
namespace {

using pubsub::Subscription;
using testing::CollectingSink;

Subscription Retaining(bool ordered) {
  Subscription settings;
  settings.ordering = ordered;
  settings.retain_acked = true;
  return settings;
}

// Publishes 0…4, has them acked, notes the time, publishes and acks 5…9; then seeks there.
class Replay : public Bus {
 protected:
  void SeeksToATime(bool ordered) {
    const std::string topic = MakeTopic();
    const std::string subscription = MakeSubscription(Retaining(ordered));
    CollectingSink all;
    const auto receiver = Receive(subscription, all);
    std::vector<pubsub::Message> early;
    std::vector<pubsub::Message> late;
    for (int i = 0; i < 5; ++i) early.push_back(Text(std::to_string(i), ordered ? "k" : ""));
    for (int i = 5; i < 10; ++i) late.push_back(Text(std::to_string(i), ordered ? "k" : ""));
    PublishAll(topic, early);
    ASSERT_NO_FATAL_FAILURE(AckUpTo(*receiver, all, 0, 5));
    server().Advance(std::chrono::seconds(10));
    PublishAll(topic, late);
    ASSERT_NO_FATAL_FAILURE(AckUpTo(*receiver, all, 5, 10));
    WallTime first_late = all.deliveries()[5].publish_time;
    for (size_t i = 5; i < 10; ++i) {
      first_late = std::min(first_late, all.deliveries()[i].publish_time);
    }
    receiver->Stop();

    const absl::Status sought = admin().SeekToTime(subscription, first_late);
    ASSERT_TRUE(sought.ok()) << sought;
    CollectingSink again;
    const auto second = Receive(subscription, again);
    ASSERT_NO_FATAL_FAILURE(AckUpTo(*second, again, 0, 5));
    PublishAll(topic, {Text("end", ordered ? "k" : "")});
    ASSERT_TRUE(again.AwaitCount(6));
    std::vector<std::string> data = again.data();
    EXPECT_EQ(data.back(), "end");  // and nothing older came
    data.pop_back();
    if (!ordered) std::sort(data.begin(), data.end());
    EXPECT_EQ(data, (std::vector<std::string>{"5", "6", "7", "8", "9"}));
  }
};

TEST_P(Replay, SeekToATimeBringsBackWhatCameAfterIt) {
  NEEDS(seek_to_time);
  NEEDS(receiving_again);
  SeeksToATime(false);
}

TEST_P(Replay, SeekToATimeWorksOnOrderedSubscriptions) {
  NEEDS(seek_to_time_ordered);
  NEEDS(receiving_again);
  SeeksToATime(true);
}

TEST_P(Replay, SeekToTheFutureDropsTheBacklog) {
  NEEDS(seek_to_time);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(Retaining(false));
  PublishAll(topic, std::vector<pubsub::Message>(20, Text("old")));
  const absl::Status sought =
      admin().SeekToTime(subscription, std::chrono::system_clock::now() + std::chrono::seconds(60));
  ASSERT_TRUE(sought.ok()) << sought;
  server().Advance(std::chrono::seconds(61));
  CollectingSink sink;
  const auto receiver = Receive(subscription, sink);
  ASSERT_TRUE(sink.Await([&] { return !sink.states().empty(); }));
  if (features().faults)
    PublishAll(topic, {Text("new")});  // its clock has been moved past the time
  if (features().faults) {
    ASSERT_TRUE(sink.AwaitCount(1));
    EXPECT_EQ(sink.data()[0], "new");
  }
  EXPECT_LE(sink.count(), 1u);
}

TEST_P(Replay, SeekToASnapshotBringsBackItsAckState) {
  NEEDS(seek_to_snapshot);
  NEEDS(receiving_again);
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription(Retaining(true));
  CollectingSink all;
  const auto receiver = Receive(subscription, all);
  PublishAll(topic, Sequences(1, 4));
  ASSERT_NO_FATAL_FAILURE(AckUpTo(*receiver, all, 0, 2));
  const auto snapshot = admin().CreateSnapshot(SnapshotNamed("snap"), subscription, {});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->topic, topic);
  EXPECT_GT(snapshot->expires, std::chrono::system_clock::now() + std::chrono::hours(1));
  PublishAll(topic, {Text("4", "k0")});
  ASSERT_NO_FATAL_FAILURE(AckUpTo(*receiver, all, 2, 5));
  receiver->Stop();

  const absl::Status sought = admin().SeekToSnapshot(subscription, snapshot->name);
  ASSERT_TRUE(sought.ok()) << sought;
  const auto again = ReceiveAndAck(subscription);
  ASSERT_TRUE(again->sink.AwaitCount(3)) << again->sink.count();
  EXPECT_EQ(again->sink.data(), (std::vector<std::string>{"2", "3", "4"}));
}

// Pub/Sub delivers what a Seek has unacked, whatever was under way when it came.
TEST_P(Replay, AnAckFromBeforeASeekAcksNothingThatItBringsBack) {
  NEEDS(seek_to_snapshot);
  NEEDS(receiving_again);
  for (const bool exactly_once : {false, true}) {
    const std::string id = exactly_once ? "exactly-once" : "plain";
    const std::string topic = MakeTopic(id);
    const std::string subscription = MakeSubscription(
        {.topic = topic, .ordering = true, .exactly_once = exactly_once, .retain_acked = true}, id);
    CollectingSink before;
    const auto receiver = Receive(subscription, before);
    const auto snapshot = admin().CreateSnapshot(SnapshotNamed(id), subscription, {});
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    PublishAll(topic, {Text("a", "k")});
    ASSERT_TRUE(before.AwaitCount(1));
    receiver->StopPulling();
    const absl::Status done = admin().SeekToSnapshot(subscription, snapshot->name);
    ASSERT_TRUE(done.ok()) << done;
    const absl::Status late = Ack(*receiver, before.tokens())[0];
    EXPECT_EQ(late.code(),
              exactly_once ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk)
        << late;
    receiver->Stop();
    const auto after = ReceiveAndAck(subscription);
    EXPECT_TRUE(after->sink.AwaitCount(1)) << id;
  }
}

// A snapshot keeps messages for those who seek to it, not for the others of its topic.
TEST_P(Replay, ALiveSnapshotAddsNothingToASeekToATime) {
  NEEDS(seek_to_time);
  const std::string topic = MakeTopic();
  const std::string old = MakeSubscription({}, "old");
  ASSERT_TRUE(admin().CreateSnapshot(SnapshotNamed("live"), old, {}).ok());
  CollectingSink to_old;
  const auto receiver = Receive(old, to_old);
  PublishAll(topic, {Text("acked")});
  ASSERT_NO_FATAL_FAILURE(AckUpTo(*receiver, to_old, 0, 1));
  const std::string young = MakeSubscription({}, "young");
  for (const std::string& name : {old, young}) {
    const absl::Status done = admin().SeekToTime(name, to_old.deliveries()[0].publish_time);
    ASSERT_TRUE(done.ok()) << done;
  }
  PublishAll(topic, {Text("new")});
  ASSERT_TRUE(to_old.AwaitCount(2));
  EXPECT_EQ(to_old.data()[1], "new");
  const auto to_young = ReceiveAndAck(young);
  ASSERT_TRUE(to_young->sink.AwaitCount(1));
  EXPECT_EQ(to_young->sink.data()[0], "new");
}

TEST_P(Replay, SnapshotsAreFoundListedAndDeleted) {
  MakeTopic();
  const std::string subscription = MakeSubscription();
  ASSERT_TRUE(admin().CreateSnapshot(SnapshotNamed("one"), subscription, {{"a", "b"}}).ok());
  EXPECT_EQ(admin().CreateSnapshot(SnapshotNamed("one"), subscription, {}).status().code(),
            absl::StatusCode::kAlreadyExists);
  const auto got = admin().GetSnapshot(SnapshotNamed("one"));
  if (got.ok()) {
    EXPECT_EQ(got->name, SnapshotNamed("one"));
  }
  const auto listed = admin().ListSnapshots("conformance");
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_TRUE(std::any_of(listed->begin(), listed->end(),
                          [&](const auto& s) { return s.name == SnapshotNamed("one"); }));
  EXPECT_TRUE(admin().DeleteSnapshot(SnapshotNamed("one")).ok());
  EXPECT_EQ(admin().DeleteSnapshot(SnapshotNamed("one")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(admin().SeekToSnapshot(subscription, SnapshotNamed("one")).code(),
            absl::StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(All, Replay, ::testing::ValuesIn(Setups()),
                         [](const auto& setup) { return setup.param.name; });

}  // namespace
}  // namespace lockstep::conformance
