// G2 and G3: once, and in order, however the events come.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

TEST(Order, FoldsPartialUpdatesThatComeBackwards) {
  GroupWorld world(/*ordered=*/false);
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .payload = Merge("a", "one"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 4, .payload = Merge("a", "four"), .ordered = false},
                 {.version = 3, .payload = Merge("b", "three"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 1);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 2);
  EXPECT_TRUE(world.Await([&] { return group->status().counts.gaps == 2; }));
  world.Publish({{.version = 2, .payload = Merge("a", "two"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT version || a || b FROM rm.items"), "4fourthree");
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  EXPECT_EQ(world.Count("SELECT n FROM rm.counters"), 4);
  EXPECT_EQ(world.Count("SELECT settled_version FROM feed_state.key_state"), 4);
}

TEST(Order, FollowsTheVersionsOfABatchOfWhichTheInboxKnowsSome) {
  GroupWorld world;
  world.options.lanes = 1;
  auto group = world.NewGroup();
  const TestEvent known{.id = "old", .version = 1, .payload = Merge("a", "one")};
  world.Publish({known});
  ASSERT_TRUE(world.AwaitDrained());
  group->Stop();
  // One batch: they are there when the group starts.
  world.Publish({known,
                 {.id = "old", .version = 2, .payload = Merge("b", "two")},
                 {.id = "new", .version = 1, .payload = Merge("a", "one")}});
  group = world.NewGroup("another");
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.id = "old", .version = 3, .payload = Merge("a", "three")},
                 {.id = "new", .version = 3, .payload = Merge("a", "three")}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT version || a || b FROM rm.items WHERE id = 'old'"), "3threetwo");
  EXPECT_EQ(world.Value("SELECT version || a FROM rm.items WHERE id = 'new'"), "1one");
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 1) << "the gap was not seen";
}

TEST(Order, WhatWasSettledIsForgottenWhereVersionsAreNotFollowed) {
  GroupWorld world;
  const auto merge = [](int64_t version) {
    return TestEvent{.version = version, .payload = Merge("a", std::to_string(version))};
  };
  const auto version = [&] { return world.Count("SELECT version FROM rm.items"); };
  auto group = world.NewGroup();
  world.Publish({merge(1), merge(3)});
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_EQ(version(), 1);
  group.reset();
  world.may_park = false;
  group = world.NewGroup();
  EXPECT_TRUE(world.Await([&] { return version() == 3; })) << "it waits for another event";
  world.Publish({merge(9)});
  ASSERT_TRUE(world.AwaitDrained());
  group.reset();
  world.may_park = true;
  group = world.NewGroup();
  world.Publish({merge(10), merge(12)});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(version(), 10);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 1);
}

// v2's transaction has its place in the order before it commits.
TEST(Order, AVersionWaitsForItsPredecessorThatAnotherLaneIsApplying) {
  GroupWorld world(/*ordered=*/false);
  const auto one = world.NewGroup("one");
  world.Publish({{.version = 1, .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  const auto session = world.database.Connect();
  auto gate = session->Begin();
  ASSERT_TRUE(gate->Execute("SELECT pg_advisory_xact_lock(7)").ok());
  const auto waiting_for = [&](const char* event) {
    return world.Count(
        fmt::format("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                    "wait_event_type = 'Lock' AND {}",
                    event));
  };
  world.Publish({{.version = 2,
                  .payload = MergeRunning("SELECT pg_advisory_xact_lock(7)"),
                  .ordered = false}});
  ASSERT_TRUE(world.Await([&] { return waiting_for("wait_event = 'advisory'") == 1; }));
  // Without a key it goes to the other lane.
  world.Publish({{.version = 3, .payload = Merge("b", "three"), .ordered = false}});
  ASSERT_TRUE(world.Await([&] { return waiting_for("wait_event <> 'advisory'") == 1; }));
  ASSERT_TRUE(gate->Commit().ok());
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT version || b FROM rm.items"), "3three");
  EXPECT_EQ(one->status().counts.parked, 0);
}

TEST(Order, AppliesReplacementsAcrossAGapAndCountsTheLateOneAsSuperseded) {
  GroupWorld world(/*ordered=*/false);
  world.may_park = false;
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 3, .payload = Replace("three"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 2, .payload = Replace("two"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT version || a FROM rm.items"), "3three");
  EXPECT_TRUE(world.Await([&] { return group->status().counts.superseded == 1; }));
}

TEST(Order, MakesADeadLetterOfAForkedVersion) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .event_id = Uuid(1)}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 1, .event_id = Uuid(2)}, {.version = 2}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT code FROM feed_state.dead_letters"), "EVENT.VERSION_CONFLICT");
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 2);  // it blocks nothing
}

// A group writes several tables, and only one of them may tell of the conflict.
TEST(Order, AForkThatDiesHasChangedNothing) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .event_id = Uuid(1)}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 1,
                  .payload = Running("INSERT INTO rm.history (id, version) VALUES ('side', 1)"),
                  .event_id = Uuid(2)},
                 {.version = 2}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT code || blocks FROM feed_state.dead_letters"),
            "EVENT.VERSION_CONFLICTfalse");
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.history WHERE id = 'side'"), 0);
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 2);
}

// Without following versions there is no row to lock until an aggregate is blocked.
TEST(Order, TwoThatBlockAnAggregateForTheFirstTimeDoNotOverwriteEachOther) {
  GroupWorld world(/*ordered=*/false);
  world.may_park = false;
  const auto group = world.NewGroup();
  world.Publish({{.id = "other", .payload = "not JSON", .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  // Another instance has parked v7 behind v6, and is about to commit.
  const auto other = world.database.Connect();
  auto transaction = other->Begin();
  ASSERT_TRUE(transaction.ok());
  ASSERT_TRUE(
      transaction
          ->Execute("INSERT INTO feed_state.key_state (generation, aggregate_key, blocked_version, "
                    "parked) SELECT generation, replace(aggregate_key, 'other', 'k1'), 6, 1 "
                    "FROM feed_state.key_state")
          .ok());
  world.Publish({{.version = 5, .payload = "not JSON", .ordered = false}});
  ASSERT_TRUE(world.Await([&] {
    return world.Count(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
               "AND wait_event_type = 'Lock'") == 1;
  }));
  ASSERT_TRUE(transaction->Commit().ok());
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT blocked_version || '/' || parked FROM feed_state.key_state "
                        "WHERE aggregate_key LIKE '%k1%'"),
            "5/1");
}

// Two instances meet on the same aggregates, unordered, with every event sent twice.
TEST(Order, HoldsWhenInstancesMeetOnTheSameAggregatesInAnyOrder) {
  GroupWorld world(/*ordered=*/false);
  world.options.lanes = 3;
  world.options.max_batch = 7;
  const auto one = world.NewGroup("one");
  const auto two = world.NewGroup("two");
  std::vector<TestEvent> first, rest;
  for (int key = 0; key < 10; ++key) {
    const std::string id = "k" + std::to_string(key);
    first.push_back({.id = id, .version = 1, .payload = Merge("a", "1"), .ordered = false});
    for (int version = 2; version <= 40; ++version) {
      const std::string field = version % 2 == 0 ? "a" : "b";
      const TestEvent event{.id = id,
                            .version = version,
                            .payload = Merge(field, std::to_string(version)),
                            .ordered = false};
      rest.push_back(event);
      rest.push_back(event);
    }
  }
  std::shuffle(rest.begin(), rest.end(), std::mt19937(42));
  world.Publish(first);
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish(rest);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(
      world.Count("SELECT count(*) FROM rm.items WHERE version = 40 AND a = '40' AND b = '39'"),
      10);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.counters WHERE n = 40"), 10);
  EXPECT_EQ(world.Count(kOutOfOrder), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.dead_letters"), 0);
}

TEST(Order, HoldsForOneKeyAloneAndForAKeyPerMessage) {
  GroupWorld world;
  const auto group = world.NewGroup();
  std::vector<TestEvent> events;
  for (int i = 1; i <= 300; ++i) {
    events.push_back({.id = "hot", .version = i});
    events.push_back({.id = "cold" + std::to_string(i), .version = 1});
  }
  world.Publish(events);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items WHERE id = 'hot'"), 300);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 301);
  EXPECT_EQ(world.Count(kOutOfOrder), 0);
}

// The runner sorts keys by their bytes; a transaction that locked them in the order of a language
// would deadlock with it.
TEST(Order, KeysStandInOneOrderInEveryLanguage) {
  GroupWorld world;
  constexpr char kKeyColumns[] =
      "SELECT count(*) FROM information_schema.columns c JOIN information_schema.tables t"
      " USING (table_schema, table_name) WHERE table_schema = 'feed_state' AND table_type = 'BASE "
      "TABLE' AND column_name = 'aggregate_key'";
  EXPECT_EQ(world.Count(kKeyColumns), 3);
  EXPECT_EQ(world.Count(std::string(kKeyColumns) + " AND collation_name = 'C'"), 3);
}

TEST(Order, SettlesIgnoredEventsToo) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .payload = Merge("a", "1")},
                 {.version = 2, .payload = R"({"ignore":true})"},
                 {.version = 3, .payload = Merge("a", "3")}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 3);
  EXPECT_TRUE(world.Await([&] { return group->status().counts.ignored == 1; }));
}

}  // namespace
}  // namespace lockstep::runner
