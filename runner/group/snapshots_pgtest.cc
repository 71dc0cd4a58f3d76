// A group's second subscription, for the snapshots of a backfill.
#include <gtest/gtest.h>

#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

constexpr char kSnapshotTopic[] = "projects/p/topics/items.backfill";
constexpr char kSnapshotSubscription[] = "projects/p/subscriptions/items.backfill.feed";

class SecondSubscription : public ::testing::Test {
 protected:
  SecondSubscription() {
    EXPECT_TRUE(world_.bus.admin().CreateTopic({.name = kSnapshotTopic}).ok());
    EXPECT_TRUE(world_.bus.admin()
                    .CreateSubscription(
                        {.name = kSnapshotSubscription, .topic = kSnapshotTopic, .ordering = true})
                    .ok());
    world_.options.snapshots = kSnapshotSubscription;
  }

  void Backfill(const TestEvent& event) {
    const auto publisher = world_.bus.NewPublisher({});
    PublishAndWait(*publisher, kSnapshotTopic, {event.Message()});
  }
  bool BackfillDrained() {
    return world_.bus.Await([&] { return world_.bus.Backlog(kSnapshotSubscription) == 0; });
  }
  std::string Row() { return world_.Value("SELECT version || a FROM rm.items WHERE id = 'k1'"); }

  GroupWorld world_;
};

TestEvent Snapshot(int64_t version, const std::string& value) {
  return {.version = version,
          .payload = Replace(value),
          .event_id = Uuid(static_cast<int>(version)),
          .snapshot = true};
}

TEST_F(SecondSubscription, FeedsTheSameLanesAndIsAckedOnItsOwn) {
  const auto group = world_.NewGroup();
  Backfill(Snapshot(5, "five"));
  ASSERT_TRUE(BackfillDrained());
  EXPECT_EQ(Row(), "5five");
  world_.Publish(
      {{.version = 5, .payload = Replace("other")}, {.version = 6, .payload = Merge("a", "six")}});
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(Row(), "6six");
  EXPECT_EQ(world_.DeadLetters(), 0);
  Backfill(Snapshot(4, "late"));
  ASSERT_TRUE(BackfillDrained());
  EXPECT_EQ(Row(), "6six");
  EXPECT_TRUE(world_.Await([&] {
    const GroupCounts counts = group->status().counts;
    return counts.snapshots == 1 && counts.snapshots_overtaken == 1 && counts.went_back == 0;
  }));
}

// A reset, a checkpoint and a database that went back are about the events' subscription.
TEST_F(SecondSubscription, MovesNoOffset) {
  const auto group = world_.NewGroup();
  Backfill(Snapshot(5, "five"));
  ASSERT_TRUE(BackfillDrained());
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.offsets"), 0);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.slots WHERE first_publish_time IS NULL"),
            1);
  world_.Publish({{.id = "k2"}});
  ASSERT_TRUE(world_.AwaitDrained());
  const std::string offset = world_.Value("SELECT message_id FROM feed_state.offsets");
  EXPECT_NE(offset, "");
  Backfill({.id = "k2", .version = 7, .event_id = Uuid(7), .snapshot = true});
  ASSERT_TRUE(BackfillDrained());
  EXPECT_EQ(world_.Value("SELECT version FROM rm.items WHERE id = 'k2'"), "7");
  EXPECT_EQ(world_.Value("SELECT message_id FROM feed_state.offsets"), offset);
}

// What a runner left undone comes again.
TEST_F(SecondSubscription, GoesOnAfterARestart) {
  Backfill(Snapshot(5, "five"));
  {
    const auto group = world_.NewGroup();
    ASSERT_TRUE(BackfillDrained());
  }
  Backfill(Snapshot(6, "six"));
  const auto group = world_.NewGroup("another");
  ASSERT_TRUE(BackfillDrained());
  EXPECT_EQ(Row(), "6six");
}

TEST_F(SecondSubscription, IsAskedForBeforeTheGroupRuns) {
  world_.options.snapshots = "projects/p/subscriptions/none";
  const auto group = world_.NewGroup();
  EXPECT_TRUE(world_.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_NE(group->status().reason.find("subscriptions/none does not exist"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::runner
