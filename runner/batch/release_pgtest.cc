// Parked events: kept, released in order, within bounds, whoever was to do it.
#include <gtest/gtest.h>

#include <algorithm>

#include "platform/log/masking.h"
#include "runner/testing/direct_batch.h"
#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

TEST(Release, KeepsParkedEventsThroughARestart) {
  GroupWorld world(/*ordered=*/false);
  auto group = world.NewGroup();
  world.Publish({{.version = 1, .payload = Merge("a", "one"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 3, .payload = Merge("b", "three"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  group->Stop();
  group = world.NewGroup("another");
  world.Publish({{.version = 2, .payload = Merge("a", "two"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT version || a || b FROM rm.items"), "3twothree");
}

TEST(Release, ReleasesAtStartWhatACrashLeftBehind) {
  GroupWorld world;
  {
    const auto group = world.NewGroup();
    world.Publish({{.version = 1, .payload = Merge("a", "one")}});
    ASSERT_TRUE(world.AwaitDrained());
    world.Publish({{.version = 3, .payload = Merge("b", "three")}});
    ASSERT_TRUE(world.AwaitDrained());
  }
  // As if v2 had settled and the process had died before it went on with v3.
  world.database.Run("UPDATE feed_state.key_state SET settled_version = 2");
  const auto group = world.NewGroup("another");
  EXPECT_TRUE(world.Await([&] { return world.Count("SELECT version FROM rm.items") == 3; }));
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
}

TEST(Release, ReleasesWhatAnotherRunnerLeftDueWithoutAStart) {
  GroupWorld world;
  world.look_for_left = Millis(100);
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .payload = Merge("a", "one")}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 3, .payload = Merge("b", "three")}});
  ASSERT_TRUE(world.AwaitDrained());
  // As if another instance had settled v2 and ended before it went on with v3.
  world.database.Run("UPDATE feed_state.key_state SET settled_version = 2");
  EXPECT_TRUE(world.Await([&] { return world.Count("SELECT version FROM rm.items") == 3; }));
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
}

// By the lanes, so that it is isolated, counted and logged like all else.
TEST(Release, BlamesWhatAnotherRunnerLeftDueIfItCantBeApplied) {
  GroupWorld world;
  world.look_for_left = Millis(100);
  const auto group = world.NewGroup();
  world.Publish({{.version = 1}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 3, .payload = MergeRunning(kDivide)}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run("UPDATE feed_state.key_state SET settled_version = 2");
  ASSERT_TRUE(world.Await([&] { return world.DeadLetters() == 1; }));
  EXPECT_TRUE(world.Await([&] { return group->status().counts.dead == 1; }));
}

// Why it halts stands on the page and in the log.
TEST(Release, NamesNoMaskedKeyWhenWhatWaitedCantBeMadeADeadLetter) {
  GroupWorld world;
  world.look_for_left = Millis(100);
  const auto group = world.NewGroup();
  world.Publish({{.version = 1}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 3, .payload = MergeRunning(kDivide)}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run("ALTER TABLE feed_state.dead_letters ADD CHECK (false)");
  MaskKeys(true);
  world.database.Run("UPDATE feed_state.key_state SET settled_version = 2");
  const bool halted = world.Await([&] { return group->status().state == GroupState::kHalted; });
  MaskKeys(false);
  ASSERT_TRUE(halted) << group->status().reason;
  EXPECT_EQ(group->status().reason.find("parked events of *** can't be made dead letters"), 0U)
      << group->status().reason;
}

// --once and a rebuild end when a group is drained.
TEST(Release, AGroupThatReleasesParkedEventsIsNotDrained) {
  GroupWorld world;
  {
    const auto group = world.NewGroup();
    world.Publish({{.version = 1}});
    ASSERT_TRUE(world.AwaitDrained());
    world.Publish({{.version = 3, .payload = MergeRunning("SELECT pg_advisory_xact_lock(7)")}});
    ASSERT_TRUE(world.AwaitDrained());
  }
  world.database.Run("UPDATE feed_state.key_state SET settled_version = 2");
  const auto session = world.database.Connect();
  auto gate = session->Begin();
  ASSERT_TRUE(gate->Execute("SELECT pg_advisory_xact_lock(7)").ok());
  const auto group = world.NewGroup("another");
  ASSERT_TRUE(world.Await([&] {
    return world.Count(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
               "AND wait_event_type = 'Lock'") == 1;
  }));
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  EXPECT_FALSE(group->DrainedFor(Millis(0)));
  ASSERT_TRUE(gate->Commit().ok());
  EXPECT_TRUE(world.Await([&] { return group->DrainedFor(Millis(0)); }));
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 3);
}

TEST(Release, ReleasesAQueueThatIsLongerThanOneTransactionTakes) {
  GroupWorld world(/*ordered=*/false);
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .payload = Merge("a", "one"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  std::vector<TestEvent> late;
  for (int v = 3; v <= 1203; ++v) {
    late.push_back({.version = v, .payload = Merge("b", std::to_string(v)), .ordered = false});
  }
  world.Publish(late);
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_EQ(world.Count("SELECT parked FROM feed_state.key_state"), 1201);
  world.Publish({{.version = 2, .payload = Merge("a", "two"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_TRUE(world.Await([&] { return world.Count("SELECT version FROM rm.items") == 1203; }));
  EXPECT_TRUE(
      world.Await([&] { return world.Count("SELECT parked FROM feed_state.key_state") == 0; }));
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  EXPECT_EQ(world.Count(kOutOfOrder), 0);
}

// Readiness goes by it: a long release is progress.
TEST(Release, ReleasingParkedEventsCountsAsCommitting) {
  GroupWorld world;
  auto group = world.NewGroup();
  world.Publish({{.version = 1}, {.version = 2, .payload = "not JSON"}, {.version = 3}});
  ASSERT_TRUE(world.AwaitDrained());
  group.reset();
  // As if an operator had discarded v2 while nobody ran.
  world.database.Run("UPDATE feed_state.key_state SET blocked_version = NULL, settled_version = 2");
  group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT version FROM rm.items") == 3; }));
  EXPECT_TRUE(world.Await([&] {
    const auto lanes = group->status().lanes;
    return std::any_of(lanes.begin(), lanes.end(),
                       [](const LaneStatus& lane) { return lane.last_commit != WallTime(); });
  }));
}

// More wait than a transaction takes, and what they waited for is over: whatever comes now comes
// after them.
TEST(Release, NothingOvertakesWhatIsBeingReleased) {
  GroupWorld world;
  world.may_park = false;
  const auto group = world.NewGroup();
  world.Publish({{.version = 1}, {.version = 2, .payload = "not JSON"}});
  ASSERT_TRUE(world.AwaitDrained());
  std::vector<TestEvent> behind;
  for (int v = 3; v <= 1202; ++v) behind.push_back({.version = v});
  world.Publish(behind);
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_EQ(world.Count("SELECT parked FROM feed_state.key_state"), 1200);
  // As if an operator had discarded v2, and had not yet gone on with the rest.
  world.database.Run("UPDATE feed_state.key_state SET blocked_version = NULL");
  world.Publish({{.version = 1203}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_TRUE(world.Await([&] { return world.Count("SELECT version FROM rm.items") == 1203; }));
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.history"), 1202);
  EXPECT_EQ(world.Count(kOutOfOrder), 0);
  EXPECT_TRUE(
      world.Await([&] { return world.Count("SELECT count(*) FROM feed_state.parked") == 0; }));
}

// Somebody deleted them by hand: nothing is looked for again and again.
TEST(Release, GoesOnWhenWhatIsCountedAsParkedIsNotThere) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.version = 1}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run("UPDATE feed_state.key_state SET parked = 1");
  for (int v = 2; v <= 3; ++v) {
    world.Publish({{.version = v}});
    ASSERT_TRUE(world.AwaitDrained());
  }
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 3);
}

TEST(Release, AReleaseIsBoundedHoweverManyAggregatesAreDue) {
  GroupWorld world(/*ordered=*/false);
  {
    const auto group = world.NewGroup();
    std::vector<TestEvent> first, late;
    for (const char* id : {"a", "b", "c"}) {
      first.push_back({.id = id, .version = 1, .ordered = false});
      for (int v = 3; v <= 302; ++v) {
        late.push_back({.id = id, .version = v, .payload = Merge("a", "x"), .ordered = false});
      }
    }
    world.Publish(first);
    ASSERT_TRUE(world.AwaitDrained());
    world.Publish(late);
    ASSERT_TRUE(world.AwaitDrained());
  }
  ASSERT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 900);
  world.database.Run("UPDATE feed_state.key_state SET settled_version = 2");
  const DirectBatch direct(world);
  const auto keys =
      *direct.batch.key_states().Releasable(*direct.connection, direct.under.generation, 10);
  ASSERT_EQ(keys.size(), 3u);
  const auto released = direct.Release(keys);
  ASSERT_TRUE(released.ok()) << released.status();
  EXPECT_EQ(released->released, 500);
  EXPECT_EQ(released->unfinished.size(), 2u);
  for (const std::string& key : released->unfinished) {
    EXPECT_TRUE(direct.Release({key}).ok());
  }
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  EXPECT_EQ(world.Count(kOutOfOrder), 0);
}

}  // namespace
}  // namespace lockstep::runner
