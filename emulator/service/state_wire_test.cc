// --state: what an emulator has outlives it, however it ends. --provision: what is there at the
// start.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "emulator/core/broker.h"
#include "emulator/testing/wire_fixture.h"
#include "emulator/wire/proto_time.h"
#include "google/pubsub/v1/schema.grpc.pb.h"
#include "platform/status.h"
#include "tests/support/fake_clock.h"
#include "tests/support/process.h"

namespace lockstep::emulator {
namespace {

using grpc::StatusCode;
using std::chrono::hours;
using std::chrono::minutes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kBefore[] = "projects/test/snapshots/before";

class State : public WireTest {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/emulator_state_" + std::to_string(getpid());
    std::filesystem::remove_all(directory_);
    WireTest::SetUp();
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  Options ServerOptions() override {
    Options options;
    options.state = directory_;
    options.clock = &clock_;
    return options;
  }
  void Restart() {
    server_.reset();
    WireTest::SetUp();
  }
  void AckAll(int max = 100) { ASSERT_TRUE(Acknowledge(AckIdsOf(PullNow(max))).ok()); }
  grpc::Status Snapshot() {
    pb::CreateSnapshotRequest request;
    request.set_name(kBefore);
    request.set_subscription(kSubscription);
    pb::Snapshot response;
    return Call(subscriber_.get(), &pb::Subscriber::Stub::CreateSnapshot, request, &response);
  }
  grpc::Status SeekToSnapshot() {
    pb::SeekRequest request;
    request.set_subscription(kSubscription);
    request.set_snapshot(kBefore);
    pb::SeekResponse response;
    return Call(subscriber_.get(), &pb::Subscriber::Stub::Seek, request, &response);
  }

  testing::FakeClock clock_;
  std::string directory_;
};

TEST_F(State, WhatIsNotAckedIsDeliveredAfterARestartAsItWas) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) { s->set_enable_message_ordering(true); }).ok());
  const std::string first = Publish("a", "k", {{"x", "1"}});
  const std::string second = Publish("b", "k");
  Publish("c", "k");
  auto before = PullNow(1);
  ASSERT_TRUE(Acknowledge(AckIdsOf(before)).ok());
  before = PullNow();  // b and c are leased, and never acked

  Restart();
  const auto after = PullNow();
  ASSERT_THAT(DataOf(after), ElementsAre("b", "c"));
  EXPECT_EQ(after[0].message().message_id(), second);
  EXPECT_EQ(after[0].message().ordering_key(), "k");
  EXPECT_EQ(after[0].message().publish_time().nanos(), before[0].message().publish_time().nanos());
  // Ack ids from before count for nothing.
  EXPECT_TRUE(Acknowledge(AckIdsOf(before)).ok());
  EXPECT_TRUE(ModifyAckDeadline(AckIdsOf(after), 0).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("b", "c"));
  // Ids go on.
  EXPECT_GT(std::stoull(Publish("d", "k")), std::stoull(second));
  EXPECT_NE(first, second);
}

TEST_F(State, WhatIsRetainedCanBeSoughtAfterARestart) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) {
                s->set_enable_message_ordering(true);
                s->set_retain_acked_messages(true);
              }).ok());
  Publish("a", "k");
  AckAll();
  ASSERT_TRUE(Snapshot().ok());
  clock_.Advance(minutes(1));
  const WallTime later = clock_.Now();
  Publish("b", "k");
  AckAll();

  Restart();
  EXPECT_THAT(PullNow(), IsEmpty());
  ASSERT_TRUE(SeekToTime(later).ok());
  Restart();  // the Seek is kept, too
  const auto again = PullNow();
  EXPECT_THAT(DataOf(again), ElementsAre("b"));
  ASSERT_TRUE(Acknowledge(AckIdsOf(again)).ok());
  ASSERT_TRUE(SeekToTime(later - hours(1)).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("a", "b"));
  ASSERT_TRUE(SeekToSnapshot().ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("b"));
}

TEST_F(State, KeepsWhatTheTopicRetainsForSubscriptionsThatComeLater) {
  pb::Topic topic;
  topic.set_name(kTopic);
  *topic.mutable_message_retention_duration() = ToProto(Millis(hours(1)));
  pb::Topic made;
  ASSERT_TRUE(Call(publisher_.get(), &pb::Publisher::Stub::CreateTopic, topic, &made).ok());
  Publish("a");
  clock_.Advance(minutes(50));
  Publish("b");
  clock_.Advance(minutes(20));

  Restart();
  ASSERT_TRUE(CreateSubscription().ok());
  ASSERT_TRUE(SeekToTime(clock_.Now() - hours(5)).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("b"));  // a is older than what is retained
}

TEST_F(State, FiltersDetachmentsAndDeletionsAreAsTheyWere) {
  const std::string other = "projects/test/topics/other";
  const std::string orphan = "projects/test/subscriptions/orphan";
  const std::string detached = "projects/test/subscriptions/detached";
  const std::string gone = "projects/test/subscriptions/gone";
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateTopic(other).ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) { s->set_filter("attributes:wanted"); }).ok());
  for (const std::string& name : {orphan, detached, gone}) {
    ASSERT_TRUE(CreateSubscription([&](auto* s) {
                  s->set_name(name);
                  s->set_topic(name == orphan ? other : kTopic);
                }).ok());
  }
  Publish("no");
  Publish("yes", "", {{"wanted", ""}});
  Publish("left", "", {}, other);
  pb::DeleteTopicRequest topic;
  topic.set_topic(other);
  google::protobuf::Empty empty;
  ASSERT_TRUE(Call(publisher_.get(), &pb::Publisher::Stub::DeleteTopic, topic, &empty).ok());
  pb::DetachSubscriptionRequest detach;
  detach.set_subscription(detached);
  pb::DetachSubscriptionResponse done;
  ASSERT_TRUE(Call(publisher_.get(), &pb::Publisher::Stub::DetachSubscription, detach, &done).ok());
  pb::DeleteSubscriptionRequest remove;
  remove.set_subscription(gone);
  ASSERT_TRUE(
      Call(subscriber_.get(), &pb::Subscriber::Stub::DeleteSubscription, remove, &empty).ok());

  Restart();
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("yes"));
  EXPECT_THAT(DataOf(PullNow(100, orphan)), ElementsAre("left"));
  pb::GetSubscriptionRequest get;
  get.set_subscription(orphan);
  pb::Subscription found;
  ASSERT_TRUE(Call(subscriber_.get(), &pb::Subscriber::Stub::GetSubscription, get, &found).ok());
  EXPECT_EQ(found.topic(), "_deleted-topic_");
  get.set_subscription(detached);
  ASSERT_TRUE(Call(subscriber_.get(), &pb::Subscriber::Stub::GetSubscription, get, &found).ok());
  EXPECT_TRUE(found.detached());
  get.set_subscription(gone);
  EXPECT_EQ(
      Call(subscriber_.get(), &pb::Subscriber::Stub::GetSubscription, get, &found).error_code(),
      StatusCode::NOT_FOUND);
  EXPECT_TRUE(CreateTopic(other).ok());  // the name is free
}

TEST_F(State, SchemasAreAsTheyWere) {
  const auto stub = [this] { return pb::SchemaService::NewStub(channel_); };
  pb::CreateSchemaRequest request;
  request.set_parent("projects/test");
  request.set_schema_id("video");
  request.mutable_schema()->set_type(pb::Schema::PROTOCOL_BUFFER);
  request.mutable_schema()->set_definition("syntax = \"proto3\"; message V { string title = 1; }");
  pb::Schema made;
  ASSERT_TRUE(Call(stub().get(), &pb::SchemaService::Stub::CreateSchema, request, &made).ok());

  Restart();
  pb::GetSchemaRequest get;
  get.set_name(made.name());
  pb::Schema found;
  ASSERT_TRUE(Call(stub().get(), &pb::SchemaService::Stub::GetSchema, get, &found).ok());
  EXPECT_EQ(found.revision_id(), made.revision_id());
  EXPECT_EQ(found.definition(), made.definition());
}

TEST_F(State, ForgetsWhatNothingCanDeliver) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  const std::string blob(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) {
    Publish(blob);
    AckAll();
  }
  Publish("kept");
  clock_.Advance(minutes(1));
  Restart();  // it tidies when it begins
  for (int i = 0; i < 20; ++i) {
    Publish(blob);
    AckAll(1);
  }
  server_.reset();
  uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    bytes += file.file_size();
  }
  EXPECT_LT(bytes, 30u << 20);  // the room of the first twenty was used again
}

TEST_F(State, BelongsToOneEmulatorAtATime) {
  Server second(ServerOptions());
  const absl::Status refused = second.Start();
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(MessageOf(refused)), HasSubstr("one emulator at a time"));
}

TEST_F(State, AFileThatIsNotOursIsRefused) {
  server_.reset();
  std::filesystem::remove_all(directory_);
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ + "/pubsub.sqlite") << std::string(5000, '?');
  Server damaged(ServerOptions());
  const absl::Status refused = damaged.Start();
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(MessageOf(refused)), HasSubstr("was not written by lockstep-emulator"));
}

// A journal whose disk is full.
class FullDisk : public Journal {
 public:
  bool full = false;
  absl::Status Answer() const { return full ? Unavailable("the disk is full") : absl::OkStatus(); }
  absl::Status SaveTopic(uint64_t, const pb::Topic&, bool) override { return Answer(); }
  absl::Status SaveSubscription(const pb::Subscription&, uint64_t, uint64_t) override {
    return Answer();
  }
  absl::Status ForgetSubscription(const std::string&) override { return Answer(); }
  absl::Status SaveSnapshot(const pb::Snapshot&, uint64_t, uint64_t,
                            const std::vector<MessagePtr>&) override {
    return Answer();
  }
  absl::Status ForgetSnapshot(const std::string&) override { return Answer(); }
  absl::Status SaveSchema(const std::string&, const std::vector<pb::Schema>&) override {
    return Answer();
  }
  absl::Status Published(uint64_t, const std::vector<MessagePtr>&,
                         const std::vector<Owed>&) override {
    return Answer();
  }
  absl::Status Acked(const std::string&, const std::vector<uint64_t>&) override { return Answer(); }
  absl::Status Sought(const std::string&, const std::vector<MessagePtr>&) override {
    return Answer();
  }
};

TEST(Broker, WhatItsJournalCouldNotKeepDidNotHappen) {
  FullDisk disk;
  Timekeeper timekeeper(Clock::System());
  SchemaRegistry schemas(Clock::System());
  Broker broker(&timekeeper, &schemas, &disk);
  pb::Topic topic;
  topic.set_name("projects/test/topics/events");
  pb::Subscription subscription;
  subscription.set_name("projects/test/subscriptions/service");
  subscription.set_topic(topic.name());
  disk.full = true;
  EXPECT_FALSE(broker.CreateTopic(topic).ok());
  disk.full = false;
  ASSERT_TRUE(broker.CreateTopic(topic).ok());
  disk.full = true;
  EXPECT_FALSE(broker.CreateSubscription(subscription).ok());
  disk.full = false;
  ASSERT_TRUE(broker.CreateSubscription(subscription).ok());

  pb::PublishRequest request;
  request.set_topic(topic.name());
  request.add_messages()->set_data("a");
  Subscription::Wakes wakes;
  disk.full = true;
  EXPECT_FALSE(broker.Publish(request, &wakes).ok());
  const auto found = broker.FindSubscription(subscription.name());
  ASSERT_TRUE(found.ok());
  const auto consumer = (*found)->Attach({}, "", {});
  ASSERT_TRUE(consumer.ok());
  EXPECT_THAT(*(*found)->Take(*consumer, {}), IsEmpty());
  disk.full = false;
  ASSERT_TRUE(broker.Publish(request, &wakes).ok());
  EXPECT_EQ((*found)->Take(*consumer, {})->size(), 1u);
  (*found)->Detach(*consumer);
}

// The program, killed.
class KilledState : public State {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/emulator_killed_" + std::to_string(getpid());
    std::filesystem::remove_all(directory_);
  }
  void Run(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"--port", "0", "--state", directory_});
    process_ = std::make_unique<testing::Process>("lockstep-emulator", flags);
    const std::string before = "listening on ";
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::string said;
    while (said.find('\n') == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << said;
      std::this_thread::yield();
      said = process_->Errors();
    }
    ASSERT_EQ(said.rfind(before, 0), 0u) << said;
    Connect(said.substr(before.size(), said.find('\n') - before.size()));
  }

  std::unique_ptr<testing::Process> process_;
};

TEST_F(KilledState, WhatWasAnsweredIsThereAfterAKillInTheMiddleOfWriting) {
  Run();
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) { s->set_enable_message_ordering(true); }).ok());
  std::vector<std::string> answered;  // and not acked
  for (int kill = 0; kill < 4; ++kill) {
    std::atomic<bool> enough = false;
    std::thread killer([&] {
      while (!enough) std::this_thread::yield();
      process_->Signal(SIGKILL);
    });
    pb::PublishRequest request;
    request.set_topic(kTopic);
    for (int i = 0;; ++i) {
      request.clear_messages();
      auto* message = request.add_messages();
      message->set_data(std::to_string(kill) + "-" + std::to_string(i) + std::string(500, 'x'));
      message->set_ordering_key("k");
      pb::PublishResponse response;
      if (!Call(publisher_.get(), &pb::Publisher::Stub::Publish, request, &response).ok()) break;
      answered.push_back(message->data());
      if (i == 40 * (kill + 1)) enough = true;  // and goes on, until it is gone
    }
    enough = true;
    killer.join();
    process_->Wait();
    Run();
  }
  const auto there = DataOf(PullNow(1000));
  // The last of a life may have been kept and not answered.
  std::vector<std::string> missing;
  for (const std::string& data : answered) {
    if (std::count(there.begin(), there.end(), data) != 1) missing.push_back(data.substr(0, 10));
  }
  EXPECT_THAT(missing, IsEmpty()) << "of " << answered.size();
  EXPECT_LE(there.size(), answered.size() + 4);
  EXPECT_TRUE(std::equal(answered.begin(), answered.begin() + 20, there.begin()));
}

TEST_F(KilledState, ProvisionsFromAFileAtTheStartAndNothingTwice) {
  const std::string file = ::testing::TempDir() + "/emulator_provision_" + std::to_string(getpid());
  std::ofstream(file) << "pubsub: {project: test}\ntopics: [events]\nsubscriptions:\n"
                         "  - {name: service, topic: events}\n";
  Run({"--provision", file});
  Publish("a");
  process_->Signal(SIGKILL);
  process_->Wait();
  Run({"--provision", file});
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("a"));

  std::ofstream(file)
      << "pubsub: {project: test}\nsubscriptions: [{name: service, topic: nowhere}]\n";
  testing::Process refused("lockstep-emulator", {"--port", "0", "--provision", file});
  EXPECT_NE(refused.Wait(), 0);
  EXPECT_THAT(refused.Errors(), HasSubstr("create subscription service"));
}

}  // namespace
}  // namespace lockstep::emulator
