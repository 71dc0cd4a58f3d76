#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/log/log.h"
#include "postgres/identifier.h"
#include "runner/testing/test_group.h"
#include "state/testing/memory_offset_provider.h"

namespace lockstep::runner {
namespace {

TEST(Group, AppliesEventsWithInboxAndOffsetThenAcks) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a", .version = 1}, {.id = "b", .version = 1}, {.id = "a", .version = 2}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 2);
  EXPECT_EQ(world.Count("SELECT version FROM rm.items WHERE id = 'a'"), 2);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 3);
  EXPECT_GE(world.Count("SELECT count(*) FROM feed_state.offsets"), 1);
}

TEST(Group, SavesItsOffsetsWhereTheServiceKeepsThem) {
  state::MemoryOffsetProvider offsets;
  GroupWorld world;
  world.offsets = &offsets;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a", .version = 1}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_TRUE((*offsets.Load(nullptr, ConsumerGroup("feed"))).has_value());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.offsets"), 0);
  // And does not take their absence from the state schema for a database that went back.
  for (int turns = 0; turns < 3; ++turns) {
    const WallTime last = group->status().last_turn;
    ASSERT_TRUE(world.Await([&] { return group->status().last_turn > last; }));
  }
  EXPECT_EQ(group->status().state, GroupState::kRunning) << group->status().reason;
}

TEST(Group, CountsAnEventOnceHoweverOftenItComes) {
  GroupWorld world;
  const auto group = world.NewGroup();
  for (int i = 0; i < 5; ++i) world.Publish({{.id = "a", .version = 1}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT n FROM rm.counters WHERE id = 'a'"), 1);
  EXPECT_TRUE(world.Await([&] { return group->status().counts.duplicates == 4; }));
}

TEST(Group, SpreadsMessagesWithoutAnOrderingKeyOverItsLanes) {
  GroupWorld world(/*ordered=*/false);
  world.options.lanes = 4;
  const auto group = world.NewGroup();
  // All of one aggregate: it is the ordering key that leads to a lane.
  for (int version = 1; version <= 8; ++version) {
    world.Publish({{.version = version, .ordered = false}});
  }
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(DISTINCT lane) FROM feed_state.offsets"), 4);
}

TEST(Group, IsWhereItsNewestMessageIsOnceNothingIsInHand) {
  GroupWorld world;
  world.options.lanes = 4;
  const auto group = world.NewGroup();
  // Each key has a lane of its own to go to; most lanes end with an old offset.
  for (int i = 0; i < 8; ++i) {
    world.Publish({{.id = "k" + std::to_string(i)}});
    ASSERT_TRUE(world.AwaitDrained());
  }
  EXPECT_GT(world.Count("SELECT count(*) FROM feed_state.offsets"), 1);
  EXPECT_TRUE(world.Await([&] {
    return world.Count(
               "SELECT count(*) FROM feed_state.group_offsets g WHERE g.live AND "
               "g.publish_time = (SELECT max(publish_time) FROM feed_state.offsets)") == 1;
  }));
}

// No transaction fails that would tell it.
TEST(GroupLife, AnIdleRunnerSaysThatItsDatabaseWasGone) {
  GroupWorld world;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  const std::string& url = world.database.url();
  const auto other =
      *postgres::Connection::Open({.url = url.substr(0, url.rfind('/')) + "/postgres"});
  const auto allow = [&](const char* whether) {
    ASSERT_TRUE(other
                    ->Run(fmt::format("ALTER DATABASE {} ALLOW_CONNECTIONS {}",
                                      postgres::QuoteIdentifier(world.database.name()), whether))
                    .ok());
  };
  ::testing::internal::CaptureStderr();
  log::Configure({});
  allow("false");
  EXPECT_TRUE(other
                  ->Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 "
                        "AND application_name LIKE 'lockstep-runner%'",
                        world.database.name())
                  .ok());
  EXPECT_TRUE(world.Await([&] { return !group->status().database_error.empty(); }));
  allow("true");
  EXPECT_TRUE(world.Await([&] { return group->status().database_error.empty(); }));
  group->Stop();  // it says so after its status does
  const std::string told = ::testing::internal::GetCapturedStderr();
  log::Configure({.level = log::Level::kWarning});
  EXPECT_THAT(told, ::testing::ContainsRegex(
                        "warning msg=\"the database does not answer.*group=feed.*error=.*\n"
                        ".*msg=\"the database answers again\".*gone_ms="));
}

}  // namespace
}  // namespace lockstep::runner
