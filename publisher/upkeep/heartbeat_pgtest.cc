#include <fmt/format.h>
#include <gmock/gmock.h>

#include "platform/status.h"
#include "publisher/testing/service_test.h"
#include "tests/support/fake_bus_admin.h"

namespace lockstep::publisher {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST_F(ServiceTest, HeartbeatsCarryTheNewestCommittedPosition) {
  PublisherConfig config = Config();
  config.heartbeat.topics = {"shop.events"};
  config.heartbeat.interval = Millis(50);
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(sink_.Await([&] { return !Heartbeats(sink_).empty(); }));
  EXPECT_THAT(Heartbeats(sink_), Contains("0"));
  const int64_t sequence = Enqueue("k", 1);
  EXPECT_TRUE(sink_.Await([&] { return Heartbeats(sink_).back() == fmt::format("{}", sequence); }));
  running->service->Stop();
}

TEST_F(ServiceTest, OnlyTheOwnerOfTheFirstShardSendsHeartbeats) {
  PublisherConfig config = Config();
  config.heartbeat.topics = {"shop.events"};
  config.heartbeat.interval = Millis(30);
  const auto owner = Make(config);
  ASSERT_TRUE(owner->service->Start().ok());
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1));
  ASSERT_TRUE(sink_.Await([&] { return !Heartbeats(sink_).empty(); }));
  owner->service->Stop();
  const auto holder = db_.Connect();
  ASSERT_TRUE(holder->Execute("SELECT pg_sleep(0.5)").ok());  // the last beat may be on its way
  const size_t before = Heartbeats(sink_).size();
  // It holds the locks of an owner: the one that starts is a standby.
  ASSERT_TRUE(
      holder->Execute("SELECT pg_advisory_lock(lockstep.lock_key('shard', 'shop.outbox', 0))")
          .ok());
  PublisherConfig second = config;
  second.instance = "b";
  const auto standby = Make(second);
  ASSERT_TRUE(standby->service->Start().ok());
  ASSERT_TRUE(holder->Execute("SELECT pg_sleep(0.3)").ok());  // ten beats
  EXPECT_EQ(Heartbeats(sink_).size(), before);
  ASSERT_TRUE(
      holder->Execute("SELECT pg_advisory_unlock(lockstep.lock_key('shard', 'shop.outbox', 0))")
          .ok());
  EXPECT_TRUE(sink_.Await([&] { return Heartbeats(sink_).size() > before; }));
}

TEST_F(ServiceTest, ATopicWithASchemaGetsNoHeartbeat) {
  CreateSchemaTopic(strict_sink_);
  PublisherConfig config = Config();
  config.heartbeat.topics = {"shop.strict", "shop.events"};
  config.topics["shop.strict"] = "shop.strict";
  config.heartbeat.interval = Millis(20);
  ::testing::internal::CaptureStderr();
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  // Both are sent in one round, the strict one first.
  EXPECT_TRUE(sink_.Await([&] { return Heartbeats(sink_).size() >= 5; }));
  running->service->Stop();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("heartbeats are refused on a topic with a schema"));
  EXPECT_EQ(log.find("are refused"), log.rfind("are refused")) << "said once";
  EXPECT_EQ(strict_sink_.count(), 0u);
  strict_->Stop();
}

// roles/pubsub.publisher may publish, and look at nothing.
class PublisherRole : public testing::FakeBusAdmin {
 public:
  using FakeBusAdmin::FakeBusAdmin;
  absl::StatusOr<pubsub::Topic> GetTopic(const std::string&) override {
    return absl::PermissionDeniedError("pubsub.topics.get");
  }
};

TEST_F(ServiceTest, HeartbeatsNeedNoRightButToPublish) {
  PublisherConfig config = Config();
  config.heartbeat.topics = {"shop.events"};
  config.heartbeat.interval = Millis(50);
  testing::FakeBus bus;
  PublisherRole role(bus);
  const auto running = Make(config);
  running->service->SetHeartbeat(*running->heartbeats, role, [](const std::string& topic) {
    return "projects/p/topics/" + topic;
  });
  ASSERT_TRUE(running->service->Start().ok());
  EXPECT_TRUE(sink_.Await([&] { return !Heartbeats(sink_).empty(); }));
  running->service->Stop();
}

}  // namespace
}  // namespace lockstep::publisher
