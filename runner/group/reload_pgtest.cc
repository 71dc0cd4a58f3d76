// What a group does with other options while it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "runner/service/inbox_cleaner.h"
#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

using ::testing::HasSubstr;

constexpr Millis kForEver{600'000};
constexpr char kFails[] = "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$";

class GroupReload : public ::testing::Test {
 protected:
  GroupReload() {
    world_.options.lanes = 1;
    world_.options.linger = kForEver;
  }

  // The first session keeps a message in hand for ever, so when it is settled that one is over, and
  // whatever comes goes to a session with `fresh`.
  void Follow(const GroupOptions& fresh) {
    group_ = world_.NewGroup();
    world_.Publish({{.id = "last of the old session"}});
    ASSERT_TRUE(world_.Await([&] {
      const auto lanes = group_->status().lanes;
      return !lanes.empty() && lanes[0].queued == 1;
    }));
    group_->Reconfigure(fresh);
    ASSERT_TRUE(world_.AwaitDrained());
  }

  void PublishKeys(int count, const std::string& payload = Replace("x")) {
    for (int i = 0; i < count; ++i) {
      world_.Publish({{.id = "k" + std::to_string(i), .payload = payload}});
    }
  }

  int64_t Transactions() {
    return world_.Count("SELECT count(DISTINCT xmin::text) FROM feed_state.inbox");
  }

  // How many of `published` messages the group takes while none can be committed.
  int64_t InHandOf(int published, const std::string& payload = Replace("x")) {
    const auto connection = world_.database.Connect();
    auto lock = connection->Begin();
    EXPECT_TRUE(lock.ok() && lock->Execute("LOCK TABLE rm.counters IN SHARE MODE").ok());
    PublishKeys(published, payload);
    EXPECT_TRUE(world_.Await([&] { return world_.bus.Outstanding(kSubscription) >= 2; }));
    return world_.bus.Outstanding(kSubscription);
  }

  GroupWorld world_;
  std::unique_ptr<Group> group_;
};

TEST_F(GroupReload, FollowsLinger) {
  GroupOptions fresh = world_.options;
  fresh.linger = Millis(0);
  Follow(fresh);
  world_.Publish({{.id = "a"}});
  EXPECT_TRUE(world_.AwaitDrained());
}

TEST_F(GroupReload, FollowsTheSizeOfABatch) {
  GroupOptions fresh = world_.options;
  fresh.max_batch = 2;
  Follow(fresh);
  PublishKeys(6);
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(Transactions(), 1 + 3);
}

TEST_F(GroupReload, FollowsTheBytesOfABatch) {
  GroupOptions fresh = world_.options;
  fresh.max_batch_bytes = 1;
  Follow(fresh);
  PublishKeys(4);
  ASSERT_TRUE(world_.Await([&] {
    const auto lanes = group_->status().lanes;
    return !lanes.empty() && lanes[0].queued == 4;
  }));
  group_->Stop();
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(Transactions(), 1 + 4);
}

TEST_F(GroupReload, FollowsHowManyMessagesItTakes) {
  world_.options.max_outstanding_messages = 1;
  GroupOptions fresh = world_.options;
  fresh.max_outstanding_messages = 2;
  fresh.linger = Millis(0);
  Follow(fresh);
  EXPECT_EQ(InHandOf(6), 2);
}

TEST_F(GroupReload, FollowsHowManyBytesItTakes) {
  GroupOptions fresh = world_.options;
  fresh.max_outstanding_bytes = 15'000;
  fresh.linger = Millis(0);
  Follow(fresh);
  EXPECT_EQ(InHandOf(6, Replace(std::string(10'000, 'x'))), 2);
}

TEST_F(GroupReload, FollowsHowOftenAnEventMayFail) {
  world_.options.max_attempts = 2;
  GroupOptions fresh = world_.options;
  fresh.max_attempts = 4;
  fresh.linger = Millis(0);
  Follow(fresh);
  world_.Publish({{.id = "bad", .payload = Running("SELECT 1 / 0")}});
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(world_.Count("SELECT attempts FROM feed_state.dead_letters"), 4);
}

TEST_F(GroupReload, FollowsHowLongAFaultIsThoughtToPass) {
  world_.options.max_attempts = 1;
  world_.options.transient_tries = 1;
  GroupOptions fresh = world_.options;
  fresh.transient_tries = 3;
  fresh.linger = Millis(0);
  Follow(fresh);
  world_.Publish({{.id = "bad", .payload = Running(kFails)}});
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(world_.Count("SELECT attempts FROM feed_state.dead_letters"), 3 + 1)
      << "and once more without what waits behind it";
}

TEST_F(GroupReload, FollowsARetentionOnceItsSubscriptionAllowsIt) {
  const Millis before = world_.options.inbox_retention;
  GroupOptions fresh = world_.options;
  fresh.inbox_retention = Millis(1'000);
  Follow(fresh);
  ASSERT_TRUE(world_.Await([&] { return group_->status().state == GroupState::kHalted; }));
  EXPECT_THAT(group_->status().reason, HasSubstr("inbox_retention is 1s"));
  EXPECT_EQ(group_->inbox_retention(), before);

  fresh.force_inbox_retention = true;
  group_->Reconfigure(fresh);
  ASSERT_TRUE(world_.Await([&] { return group_->status().ready(); }));
  EXPECT_EQ(group_->inbox_retention(), fresh.inbox_retention);
}

TEST(InboxCleaner, CleansAtOnceWhenARetentionChanges) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a"}});
  ASSERT_TRUE(world.AwaitDrained());
  std::atomic<int> asked = 0;
  std::atomic<Millis> retention = kForEver;
  InboxCleaner cleaner(
      {.database = world.database.url(), .state_schema = "feed_state", .interval = kForEver}, [&] {
        ++asked;
        return std::vector<InboxRetention>{{ConsumerGroup("feed"), retention}};
      });
  ASSERT_TRUE(cleaner.Start().ok());
  ASSERT_TRUE(world.Await([&] { return asked >= 2; }));
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 1);
  retention = Millis(0);
  EXPECT_TRUE(
      world.Await([&] { return world.Count("SELECT count(*) FROM feed_state.inbox") == 0; }));
}

}  // namespace
}  // namespace lockstep::runner
