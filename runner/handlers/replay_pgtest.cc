// What was handled before: after a reset that empties, in a replay that overwrites, of what had
// died.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offsets/reset.h"
#include "platform/status.h"
#include "runner/service/inbox_cleaner.h"
#include "runner/testing/handler_world.h"

namespace lockstep::runner {
namespace {

using offsets::ResetMode;
using ::testing::Each;
using testing::HttpTestServer;
using ::testing::Pair;

constexpr char kThree[] =
    "  - {name: hook, call: %URL%, events: [Made], allow_private: true}\n"
    "  - {name: log, call: rm.on_made, events: [Made], tables: [rm.log]}\n"
    "  - {name: once, call: rm.once, events: [Made], replay: skip}\n";
constexpr char kFunctions[] = R"(
CREATE TABLE rm.once_log (id text, version bigint);
CREATE FUNCTION rm.on_made(events feed_state.event[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO rm.log (id, version, line)
  SELECT e.aggregate_id, e.version, CASE WHEN e.replay THEN 'again' ELSE 'first' END
    FROM unnest(events) e $$;
CREATE FUNCTION rm.once(events feed_state.event[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO rm.once_log SELECT e.aggregate_id, e.version FROM unnest(events) e $$)";

class HandlerReplay : public ::testing::Test {
 protected:
  void Prepare(HandlerWorld& world) {
    world.database.Run(kFunctions);
    world.options.ack_fence = Millis(100);
    world.options.seek_takeover = Millis(300);
    pubsub::Subscription subscription = *world.bus.admin().GetSubscription(kSubscription);
    subscription.retain_acked = true;
    ASSERT_TRUE(world.bus.admin().UpdateSubscription(subscription, {"retain_acked_messages"}).ok());
  }
  void Begin(HandlerWorld& world, ResetMode mode) {
    const auto connection = world.database.Connect();
    const auto done = offsets::Resets(state::Schema("feed_state"), ConsumerGroup("feed"))
                          .Run(*connection, {.seek = state::SeekTarget::To(WallTime()),
                                             .mode = mode,
                                             .tables = world.NewProjector()->AllTables(),
                                             .operator_name = "ada",
                                             .reason = "a test",
                                             .fence = Millis(200),
                                             .takeover = Millis(300),
                                             .lock_try = Millis(100)});
    ASSERT_TRUE(done.ok()) << done.status();
  }
  void Reset(HandlerWorld& world, ResetMode mode) {
    Begin(world, mode);
    ASSERT_TRUE(world.Await([&] {
      return world.Value("SELECT seek_state FROM feed_state.consumer_groups") == "done";
    }));
  }
};

TEST_F(HandlerReplay, AfterAResetThatEmptiesFunctionsAreCalledAgainAndEndpointsAreNot) {
  HandlerWorld world(kThree);
  Prepare(world);
  const auto group = world.NewGroup();
  world.Make("a", 1, 3);
  ASSERT_TRUE(world.AwaitDrained());
  Reset(world, ResetMode::kEmpty);
  world.Make("a", 4, 4);
  ASSERT_TRUE(world.Await([&] { return world.CallsByEvent().contains("a/4"); }));
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_THAT(world.CallsByEvent(), Each(Pair(::testing::_, 1)));
  EXPECT_EQ(world.CallsByEvent().size(), 4u);
  EXPECT_EQ(world.Count("SELECT version FROM rm.thing"), 4);
  EXPECT_EQ(world.Value("SELECT string_agg(version || line, ' ' ORDER BY seq) FROM rm.log"),
            "1again 2again 3again 4first")
      << "its table was emptied";
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.once_log"), 4);
}

TEST_F(HandlerReplay, AnEndpointThatWantsThemIsToldThatItIsAReplay) {
  HandlerWorld world(
      "  - {name: hook, call: %URL%, events: [Made], allow_private: true, replay: call}\n");
  Prepare(world);
  const auto group = world.NewGroup();
  world.Make("a", 1, 1);
  ASSERT_TRUE(world.AwaitDrained());
  Reset(world, ResetMode::kEmpty);
  ASSERT_TRUE(world.Await([&] { return world.server.seen().size() == 2; }));
  EXPECT_EQ(world.server.seen()[0].headers.at("lockstep-replay"), "false");
  EXPECT_EQ(world.server.seen()[1].headers.at("lockstep-replay"), "true");
}

TEST_F(HandlerReplay, WhatDiedOrWaitedInTheOldGenerationIsNoReplay) {
  std::atomic<bool> bad = true;
  HandlerWorld world(kThree, [&](const HandlerWorld::Seen& seen) {
    return bad && EventOf(seen) == "a/2" ? HttpTestServer::Status(400) : HttpTestServer::Ok();
  });
  Prepare(world);
  auto group = world.NewGroup();
  world.Make("a", 1, 3);
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_EQ(world.CallsByEvent().size(), 2u);  // 3 waits behind 2, which is dead
  bad = false;
  group.reset();
  Begin(world, ResetMode::kEmpty);
  // The cleaner forgets that it waited, and must not make it seem handled.
  InboxCleaner cleaner({.database = world.database.url(), .state_schema = "feed_state"},
                       [] { return std::vector<InboxRetention>(); });
  ASSERT_TRUE(cleaner.CleanOnce({{ConsumerGroup("feed"), Millis(3'600'000)}}).ok());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return world.CallsByEvent().contains("a/3"); }));
  const auto calls = world.CallsByEvent();
  EXPECT_EQ(calls.at("a/1"), 1);
  EXPECT_EQ(calls.at("a/2"), 2);
  EXPECT_EQ(calls.at("a/3"), 1);
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT version FROM rm.thing") == 3; }));
  EXPECT_EQ(world.Value("SELECT string_agg(version || line, ' ' ORDER BY seq) FROM rm.log"),
            "1again 2first 3first");
}

TEST_F(HandlerReplay, AReplayThatOverwritesCallsThoseThatWantIt) {
  HandlerWorld world(kThree);
  Prepare(world);
  const auto group = world.NewGroup();
  world.Make("a", 1, 2);
  ASSERT_TRUE(world.AwaitDrained());
  Reset(world, ResetMode::kOverwrite);
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT count(*) FROM rm.log") == 4; }));
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT string_agg(version || line, ' ' ORDER BY seq) FROM rm.log"),
            "1first 2first 1again 2again");
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.once_log"), 2);
  EXPECT_EQ(world.server.seen().size(), 2u);
}

TEST_F(HandlerReplay, TheCleanerRemembersWhatWasHandledForAsLongAsItCanComeAgain) {
  HandlerWorld world(kThree);
  Prepare(world);
  auto group = world.NewGroup();
  world.Make("a", 1, 2);
  ASSERT_TRUE(world.AwaitDrained());
  group.reset();
  {
    const auto connection = world.database.Connect();
    ASSERT_TRUE(offsets::Resets(state::Schema("feed_state"), ConsumerGroup("feed"))
                    .Run(*connection, {.seek = state::SeekTarget::To(WallTime()),
                                       .mode = ResetMode::kEmpty,
                                       .operator_name = "ada",
                                       .fence = Millis(100)})
                    .ok());
  }
  InboxCleaner cleaner({.database = world.database.url(), .state_schema = "feed_state"},
                       [] { return std::vector<InboxRetention>(); });
  ASSERT_TRUE(cleaner.CleanOnce({{ConsumerGroup("feed"), Millis(3'600'000)}}).ok());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 2);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.retired_generations"), 1);
  world.database.Run("UPDATE feed_state.inbox SET received_at = now() - interval '2 hours'");
  ASSERT_TRUE(cleaner.CleanOnce({{ConsumerGroup("feed"), Millis(3'600'000)}}).ok());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.retired_generations"), 0);
}

}  // namespace
}  // namespace lockstep::runner
