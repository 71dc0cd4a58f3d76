// Where a group begins that has no offset yet.
#include <gtest/gtest.h>

#include "platform/duration.h"
#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

constexpr char kSnapshot[] = "projects/p/snapshots/by-hand";

// Events a, b and c were published and acked by somebody before the group's first start; between a
// and b the clock was read and a snapshot taken.
class FirstStart : public ::testing::Test {
 protected:
  FirstStart() {
    pubsub::Subscription subscription = *world_.bus.admin().GetSubscription(kSubscription);
    subscription.retain_acked = true;
    EXPECT_TRUE(
        world_.bus.admin().UpdateSubscription(subscription, {"retain_acked_messages"}).ok());
    world_.options.seek_takeover = Millis(300);
    {
      const auto before = world_.NewGroup("before");
      world_.Publish({{.id = "a"}});
      EXPECT_TRUE(world_.AwaitDrained());
      time_ = FormatTimestamp(Clock::System().Now());
      EXPECT_TRUE(world_.bus.admin().CreateSnapshot(kSnapshot, kSubscription, {}).ok());
      world_.Publish({{.id = "b"}, {.id = "c"}});
      EXPECT_TRUE(world_.AwaitDrained());
    }
    Forget();
  }
  void Forget() {
    world_.database.Run(
        "DELETE FROM feed_state.consumer_groups; DELETE FROM feed_state.slots; "
        "DELETE FROM feed_state.inbox; DELETE FROM feed_state.offsets; "
        "TRUNCATE rm.items, rm.counters");
  }
  // What is applied by a group that starts from there, with one event more: d.
  std::string Applied(const std::string& start_from) {
    world_.options.start_from = start_from;
    const auto group = world_.NewGroup("first");
    EXPECT_TRUE(world_.Await([&] { return group->status().ready(); })) << group->status().reason;
    world_.Publish({{.id = "d"}});
    EXPECT_TRUE(world_.AwaitDrained());
    return world_.Value("SELECT string_agg(id, '' ORDER BY id) FROM rm.items");
  }

  GroupWorld world_;
  std::string time_;
};

TEST_F(FirstStart, FromCommittedSeeksNothing) {
  EXPECT_EQ(Applied("committed"), "d");
  EXPECT_TRUE(world_.bus.seeks().empty());
}
TEST_F(FirstStart, FromTheEarliest) { EXPECT_EQ(Applied("earliest"), "abcd"); }
TEST_F(FirstStart, FromTheLatest) { EXPECT_EQ(Applied("latest"), "d"); }
TEST_F(FirstStart, FromATime) { EXPECT_EQ(Applied(time_), "bcd"); }
TEST_F(FirstStart, FromASnapshotByItsShortName) { EXPECT_EQ(Applied("snapshot:by-hand"), "bcd"); }

TEST_F(FirstStart, FromTheNewestCheckpoint) {
  world_.database.Run(
      "INSERT INTO feed_state.checkpoints (group_name, number, snapshot, subscription, epoch, "
      "taken_at) VALUES ('feed', 7, 'projects/p/snapshots/by-hand', "
      "'projects/p/subscriptions/items.feed', 1, now())");
  EXPECT_EQ(Applied("checkpoint"), "bcd");
}

TEST_F(FirstStart, WithoutACheckpointHaltsAndSaysSo) {
  world_.options.start_from = "checkpoint";
  const auto group = world_.NewGroup("first");
  ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_EQ(group->status().reason, "start_from is checkpoint, and no checkpoint is recorded");
}

TEST_F(FirstStart, CountsNoMoreOnceItIsOver) {
  EXPECT_EQ(Applied("committed"), "d");
  world_.options.start_from = "earliest";
  const auto group = world_.NewGroup("second");
  ASSERT_TRUE(world_.Await([&] { return group->status().ready(); }));
  EXPECT_TRUE(world_.bus.seeks().empty());
}

TEST(FirstSession, NotesOnlyOnceWhatCameFirst) {
  GroupWorld world;
  world.options.lanes = 1;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  world.database.Run(R"(
    CREATE TABLE rm.noted (at timestamptz);
    CREATE FUNCTION rm.note() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN INSERT INTO rm.noted VALUES (NEW.first_publish_time); RETURN NEW; END $$;
    CREATE TRIGGER note BEFORE UPDATE OF first_publish_time ON feed_state.slots
      FOR EACH ROW EXECUTE FUNCTION rm.note();)");
  for (const int64_t version : {1, 2, 3}) {
    world.Publish({{.version = version}});
    ASSERT_TRUE(world.AwaitDrained());
  }
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.noted"), 1);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.noted JOIN feed_state.slots ON "
                        "at = first_publish_time"),
            1);
}

}  // namespace
}  // namespace lockstep::runner
