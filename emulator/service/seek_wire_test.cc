// Retention, snapshots and Seek.
#include <gmock/gmock.h>

#include "emulator/testing/wire_fixture.h"
#include "emulator/wire/names.h"
#include "emulator/wire/proto_time.h"
#include "tests/support/fake_clock.h"

namespace lockstep::emulator {
namespace {

using grpc::StatusCode;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kSnapshot[] = "projects/test/snapshots/before";

class SeekWire : public WireTest {
 protected:
  Options ServerOptions() override {
    Options options;
    options.clock = &clock_;
    return options;
  }

  grpc::Status CreateSnapshot(pb::Snapshot* response, const std::string& name = kSnapshot) {
    pb::CreateSnapshotRequest request;
    request.set_name(name);
    request.set_subscription(kSubscription);
    return Call(subscriber_.get(), &pb::Subscriber::Stub::CreateSnapshot, request, response);
  }
  grpc::Status SeekToSnapshot(const std::string& subscription = kSubscription,
                              const std::string& snapshot = kSnapshot) {
    pb::SeekRequest request;
    request.set_subscription(subscription);
    request.set_snapshot(snapshot);
    pb::SeekResponse response;
    return Call(subscriber_.get(), &pb::Subscriber::Stub::Seek, request, &response);
  }
  grpc::Status GetSnapshot(pb::Snapshot* response) {
    pb::GetSnapshotRequest request;
    request.set_snapshot(kSnapshot);
    return Call(subscriber_.get(), &pb::Subscriber::Stub::GetSnapshot, request, response);
  }
  void AckAll() {
    const auto messages = PullNow(1000);
    ASSERT_FALSE(messages.empty());
    ASSERT_TRUE(Acknowledge(AckIdsOf(messages)).ok());
  }
  // Until the server has done what is due by now: another subscription's message ends last.
  void AwaitTime() {
    const std::string name = "projects/test/topics/witness" + std::to_string(++witnesses_);
    const std::string subscription = kSubscription + std::to_string(witnesses_);
    ASSERT_TRUE(CreateTopic(name).ok());
    ASSERT_TRUE(CreateSubscription([&](auto* s) {
                  s->set_name(subscription);
                  s->set_topic(name);
                  *s->mutable_message_retention_duration() = ToProto(minutes(10));
                }).ok());
    Publish("witness", "", {}, name);
    clock_.Advance(minutes(10));
    for (auto left = PullNow(1, subscription); !left.empty(); left = PullNow(1, subscription)) {
      pb::ModifyAckDeadlineRequest request;
      request.set_subscription(subscription);
      request.add_ack_ids(left[0].ack_id());
      google::protobuf::Empty response;
      const auto call = &pb::Subscriber::Stub::ModifyAckDeadline;
      ASSERT_TRUE(Call(subscriber_.get(), call, request, &response).ok());
    }
  }
  void CreateTopicWithRetention(Millis retention) {
    pb::Topic request;
    request.set_name(kTopic);
    *request.mutable_message_retention_duration() = ToProto(retention);
    pb::Topic response;
    ASSERT_TRUE(Call(publisher_.get(), &pb::Publisher::Stub::CreateTopic, request, &response).ok());
  }

  testing::FakeClock clock_;
  int witnesses_ = 0;
};

TEST_F(SeekWire, SeekToATimeSplitsAtThatTime) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) { s->set_retain_acked_messages(true); }).ok());
  Publish("old");
  clock_.Advance(seconds(1));
  const WallTime time = clock_.Now();
  Publish("new");
  AckAll();
  EXPECT_TRUE(SeekToTime(time).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("new"));
}

TEST_F(SeekWire, WithoutRetentionAckedMessagesAreGone) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  Publish("a");
  AckAll();
  EXPECT_TRUE(SeekToTime(clock_.Now() - hours(1)).ok());
  EXPECT_THAT(PullNow(), IsEmpty());
}

TEST_F(SeekWire, AcksFromBeforeASeekCountForNothingThatItBringsBack) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) { s->set_retain_acked_messages(true); }).ok());
  Publish("a");
  Publish("b");
  const auto messages = PullNow();
  EXPECT_TRUE(SeekToTime(clock_.Now()).ok());
  EXPECT_TRUE(Acknowledge({messages[0].ack_id()}).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("a", "b"));
}

TEST_F(SeekWire, AcksFromBeforeASeekAreRefusedWithExactlyOnceDelivery) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) { s->set_enable_exactly_once_delivery(true); }).ok());
  Publish("a");
  const auto messages = PullNow();
  EXPECT_TRUE(SeekToTime(clock_.Now()).ok());
  EXPECT_EQ(Acknowledge(AckIdsOf(messages)).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("a"));
}

TEST_F(SeekWire, TopicRetentionServesANewSubscription) {
  CreateTopicWithRetention(hours(24));
  Publish("before it was born");
  clock_.Advance(seconds(1));
  ASSERT_TRUE(CreateSubscription().ok());
  EXPECT_THAT(PullNow(), IsEmpty());
  EXPECT_TRUE(SeekToTime(clock_.Now() - hours(1)).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("before it was born"));
  pb::GetSubscriptionRequest request;
  request.set_subscription(kSubscription);
  pb::Subscription subscription;
  ASSERT_TRUE(
      Call(subscriber_.get(), &pb::Subscriber::Stub::GetSubscription, request, &subscription).ok());
  EXPECT_EQ(FromProto(subscription.topic_message_retention_duration()), hours(24));
}

TEST_F(SeekWire, TopicRetentionEnds) {
  CreateTopicWithRetention(minutes(10));
  Publish("a");
  clock_.Advance(minutes(10));
  ASSERT_TRUE(CreateSubscription().ok());
  EXPECT_TRUE(SeekToTime(clock_.Now() - hours(1)).ok());
  EXPECT_THAT(PullNow(), IsEmpty());
}

TEST_F(SeekWire, WhatTheTopicKeepsOutlivesTheSubscriptionsRetention) {
  CreateTopicWithRetention(hours(24));
  const auto briefly = [](auto* s) {
    *s->mutable_message_retention_duration() = ToProto(hours(1));
  };
  ASSERT_TRUE(CreateSubscription(briefly).ok());
  Publish("acked");
  AckAll();
  Publish("unacked");
  clock_.Advance(hours(10));
  AwaitTime();
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("unacked"));
  EXPECT_TRUE(SeekToTime(clock_.Now() - hours(11)).ok());
  AwaitTime();
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("acked", "unacked"));
  EXPECT_TRUE(SeekToTime(clock_.Now() - hours(11)).ok());  // no leases

  pb::UpdateTopicRequest request;
  request.mutable_topic()->set_name(kTopic);
  *request.mutable_topic()->mutable_message_retention_duration() = ToProto(hours(2));
  request.mutable_update_mask()->add_paths("message_retention_duration");
  pb::Topic response;
  ASSERT_TRUE(Call(publisher_.get(), &pb::Publisher::Stub::UpdateTopic, request, &response).ok());
  AwaitTime();
  EXPECT_THAT(PullNow(), IsEmpty());
}

TEST_F(SeekWire, TopicRetentionIsWithinTenMinutesAnd31Days) {
  for (const Millis bad : {Millis(minutes(9)), Millis(hours(31 * 24 + 1))}) {
    pb::Topic request;
    request.set_name(kTopic);
    *request.mutable_message_retention_duration() = ToProto(bad);
    pb::Topic response;
    EXPECT_EQ(
        Call(publisher_.get(), &pb::Publisher::Stub::CreateTopic, request, &response).error_code(),
        StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(SeekWire, ASeekBringsAFilteredSubscriptionOnlyWhatItWants) {
  CreateTopicWithRetention(hours(24));
  Publish("no", "", {{"kind", "b"}});
  Publish("yes", "", {{"kind", "a"}});
  ASSERT_TRUE(CreateSubscription([](auto* s) { s->set_filter("attributes.kind = \"a\""); }).ok());
  EXPECT_TRUE(SeekToTime(clock_.Now() - hours(1)).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("yes"));
  Publish("no again", "", {{"kind", "b"}});
  Publish("yes again", "", {{"kind", "a"}});
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("yes again"));
}

TEST_F(SeekWire, ASnapshotKeepsWhatWasUnackedAndEverythingAfter) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) { s->set_enable_message_ordering(true); }).ok());
  Publish("acked", "key");
  AckAll();
  Publish("unacked", "key");
  pb::Snapshot snapshot;
  ASSERT_TRUE(CreateSnapshot(&snapshot).ok());
  EXPECT_EQ(snapshot.topic(), kTopic);
  Publish("after", "key");
  AckAll();
  EXPECT_THAT(PullNow(), IsEmpty());
  ASSERT_TRUE(SeekToSnapshot().ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("unacked", "after"));
}

TEST_F(SeekWire, ASnapshotServesAnotherSubscriptionOfItsTopic) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  Publish("unacked");
  pb::Snapshot snapshot;
  ASSERT_TRUE(CreateSnapshot(&snapshot).ok());
  Publish("after");
  AckAll();
  const std::string other = "projects/test/subscriptions/other";
  ASSERT_TRUE(CreateSubscription([&](auto* s) { s->set_name(other); }).ok());
  ASSERT_TRUE(SeekToSnapshot(other).ok());
  EXPECT_THAT(DataOf(PullNow(10, other)), ElementsAre("unacked", "after"));
}

TEST_F(SeekWire, ASnapshotOfAnotherTopicIsRefused) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateTopic("projects/test/topics/other").ok());
  ASSERT_TRUE(CreateSubscription().ok());
  pb::Snapshot snapshot;
  ASSERT_TRUE(CreateSnapshot(&snapshot).ok());
  const std::string other = "projects/test/subscriptions/other";
  ASSERT_TRUE(CreateSubscription([&](auto* s) {
                s->set_name(other);
                s->set_topic("projects/test/topics/other");
              }).ok());
  EXPECT_EQ(SeekToSnapshot(other).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(SeekToSnapshot(kSubscription, "projects/test/snapshots/missing").error_code(),
            StatusCode::NOT_FOUND);
  EXPECT_EQ(SeekToSnapshot(kSubscription, "nonsense").error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(SeekWire, ASnapshotLivesForSevenDaysFromItsOldestMessageOn) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  const WallTime published = clock_.Now();
  Publish("old");
  clock_.Advance(hours(24));
  pb::Snapshot snapshot;
  ASSERT_TRUE(CreateSnapshot(&snapshot).ok());
  EXPECT_EQ(FromProto(snapshot.expire_time()), published + hours(7 * 24));
  EXPECT_EQ(CreateSnapshot(&snapshot).error_code(), StatusCode::ALREADY_EXISTS);
  clock_.Advance(hours(6 * 24) - minutes(30));
  EXPECT_TRUE(GetSnapshot(&snapshot).ok());
  EXPECT_EQ(CreateSnapshot(&snapshot, "projects/test/snapshots/late").error_code(),
            StatusCode::FAILED_PRECONDITION);
  clock_.Advance(minutes(30));
  EXPECT_EQ(Until(StatusCode::NOT_FOUND, [&] { return GetSnapshot(&snapshot); }),
            StatusCode::NOT_FOUND);
}

TEST_F(SeekWire, SnapshotsAreListedChangedAndDeleted) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  pb::Snapshot snapshot;
  ASSERT_TRUE(CreateSnapshot(&snapshot).ok());
  pb::UpdateSnapshotRequest update;
  update.mutable_snapshot()->set_name(kSnapshot);
  (*update.mutable_snapshot()->mutable_labels())["a"] = "1";
  update.mutable_update_mask()->add_paths("labels");
  ASSERT_TRUE(
      Call(subscriber_.get(), &pb::Subscriber::Stub::UpdateSnapshot, update, &snapshot).ok());
  pb::ListSnapshotsRequest list;
  list.set_project("projects/test");
  pb::ListSnapshotsResponse listed;
  ASSERT_TRUE(Call(subscriber_.get(), &pb::Subscriber::Stub::ListSnapshots, list, &listed).ok());
  ASSERT_EQ(listed.snapshots_size(), 1);
  EXPECT_EQ(listed.snapshots(0).labels().at("a"), "1");
  pb::ListTopicSnapshotsRequest of_topic;
  of_topic.set_topic(kTopic);
  pb::ListTopicSnapshotsResponse names;
  ASSERT_TRUE(
      Call(publisher_.get(), &pb::Publisher::Stub::ListTopicSnapshots, of_topic, &names).ok());
  EXPECT_THAT(names.snapshots(), ElementsAre(kSnapshot));
  pb::DeleteSnapshotRequest remove;
  remove.set_snapshot(kSnapshot);
  google::protobuf::Empty empty;
  EXPECT_TRUE(Call(subscriber_.get(), &pb::Subscriber::Stub::DeleteSnapshot, remove, &empty).ok());
  EXPECT_EQ(
      Call(subscriber_.get(), &pb::Subscriber::Stub::DeleteSnapshot, remove, &empty).error_code(),
      StatusCode::NOT_FOUND);
}

TEST_F(SeekWire, LeasesExpireByTheServersClock) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  Publish("a");
  auto stream = Open(kSubscription, [](auto* r) { r->set_stream_ack_deadline_seconds(10); });
  const auto first = stream->Read(1);
  clock_.Advance(seconds(10));
  const auto second = stream->Read(1);
  EXPECT_EQ(second[0].message().message_id(), first[0].message().message_id());
  EXPECT_NE(second[0].ack_id(), first[0].ack_id());
}

TEST_F(SeekWire, AnUnusedSubscriptionExpires) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) {
                *s->mutable_message_retention_duration() = ToProto(hours(1));
                *s->mutable_expiration_policy()->mutable_ttl() = ToProto(hours(24));
              }).ok());
  pb::GetSubscriptionRequest request;
  request.set_subscription(kSubscription);
  pb::Subscription subscription;
  const auto get = [&] {
    return Call(subscriber_.get(), &pb::Subscriber::Stub::GetSubscription, request, &subscription);
  };
  clock_.Advance(hours(23));
  PullNow();  // it is in use
  clock_.Advance(hours(23));
  EXPECT_TRUE(get().ok());
  clock_.Advance(hours(24));
  EXPECT_EQ(Until(StatusCode::NOT_FOUND, get), StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace lockstep::emulator
