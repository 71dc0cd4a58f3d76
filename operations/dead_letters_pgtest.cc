// Dead letters resolved by hand, while the group runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "offsets/reset.h"
#include "operations/dead_letters.h"
#include "platform/status.h"
#include "runner/testing/test_group.h"
#include "state/events/dead_letters.h"
#include "tests/support/eventually.h"

namespace lockstep::operations {

using namespace runner;  // what a group is made of, and its fixtures
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// What lockstepctl does, on a connection of its own.
class Operator {
 public:
  explicit Operator(GroupWorld& world) : world_(world) { projector_.may_park = world.may_park; }

  absl::Status Resolve(int64_t id, bool replay, bool accept_missing = false) {
    return resolver_.Resolve(
        {.id = id, .replay = replay, .operator_name = "ann", .accept_missing = accept_missing});
  }
  int64_t FirstDead() {
    return world_.Count("SELECT min(id) FROM feed_state.dead_letters WHERE state = 'dead'");
  }
  state::DeadLetters desk() const { return {schema_, ConsumerGroup("feed")}; }
  postgres::Connection& connection() { return *connection_; }

 private:
  GroupWorld& world_;
  const state::Schema schema_{"feed_state"};
  const std::unique_ptr<postgres::Connection> connection_ = world_.database.Connect();
  TestProjector projector_;
  DeadLetterResolver resolver_{world_.database.url(), schema_, world_.options, projector_};
};

// An event that fails until somebody creates the table rm.cure.
std::string Curable(const std::string& field) {
  std::string payload = Merge(field, "cured");
  payload.pop_back();
  return payload +
         R"(,"sql":"DO $$ BEGIN IF to_regclass('rm.cure') IS NULL THEN RAISE 'ill'; END IF; END $$"})";
}

// To give one up finishes its version and all before it.
TEST(DeadLetterDiscard, IsRefusedWhileVersionsBeforeItMayStillCome) {
  GroupWorld world(/*ordered=*/false);
  const auto group = world.NewGroup();
  const auto publish = [&](int64_t version, const std::string& payload) {
    world.Publish({{.version = version, .payload = payload, .ordered = false}});
    ASSERT_TRUE(world.AwaitDrained());
  };
  publish(1, Merge("a", "one"));
  publish(4, "not json");
  publish(5, Merge("b", "five"));
  Operator ann(world);
  const auto early = ann.Resolve(ann.FirstDead(), false);
  EXPECT_TRUE(absl::IsFailedPrecondition(early)) << early;
  EXPECT_THAT(std::string(MessageOf(early)), HasSubstr("--accept-missing"));
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 1);
  // One of them is dead itself: it has come.
  publish(3, "not json");
  EXPECT_FALSE(ann.Resolve(ann.FirstDead(), false).ok()) << "version 2 is still missing";
  publish(2, Merge("a", "two"));
  EXPECT_TRUE(ann.Resolve(ann.FirstDead(), false).ok());
  EXPECT_TRUE(ann.Resolve(ann.FirstDead(), false).ok());
  EXPECT_EQ(world.Value("SELECT version || a || b FROM rm.items"), "5twofive");
}

TEST(DeadLetterDiscard, GivesUpWhatIsMissingIfTold) {
  GroupWorld world(/*ordered=*/false);
  const auto group = world.NewGroup();
  for (const int64_t version : {1, 3, 4}) {
    world.Publish({{.version = version,
                    .payload = version == 3 ? "not json" : Merge("a", "x"),
                    .ordered = false}});
    ASSERT_TRUE(world.AwaitDrained());
  }
  Operator ann(world);
  EXPECT_TRUE(ann.Resolve(ann.FirstDead(), false, /*accept_missing=*/true).ok());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 4);
}

TEST(DeadLetterReplay, AppliesItAndThenWhatWaitedInOrderWithoutTouchingTheOffset) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .payload = Merge("a", "1")},
                 {.version = 2, .payload = Curable("b")},
                 {.version = 3, .payload = Merge("a", "3")},
                 {.version = 4, .payload = Merge("a", "4")}});
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_EQ(world.Count("SELECT version FROM rm.items"), 1);
  ASSERT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 2);
  Operator ann(world);
  const auto ill = ann.Resolve(ann.FirstDead(), true);
  EXPECT_THAT(std::string(MessageOf(ill)), HasSubstr("P0001"));
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 2);

  world.database.Run("CREATE TABLE rm.cure ()");
  const std::string offset =
      world.Value("SELECT string_agg(message_id, ',') FROM feed_state.offsets");
  ASSERT_TRUE(ann.Resolve(ann.FirstDead(), true).ok());
  EXPECT_EQ(world.Value("SELECT version || a || b FROM rm.items"), "44cured");
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  EXPECT_EQ(world.Count("SELECT n FROM rm.counters"), 4);
  EXPECT_EQ(world.Value("SELECT string_agg(version::text, '' ORDER BY seq) FROM rm.history"),
            "1234");
  EXPECT_EQ(world.Value("SELECT string_agg(message_id, ',') FROM feed_state.offsets"), offset);
  EXPECT_EQ(world.Value("SELECT state FROM feed_state.dead_letters"), "replayed");
  EXPECT_EQ(world.Value("SELECT operator FROM feed_state.audit"), "ann");
  // Its aggregate goes on as if nothing had been.
  world.Publish({{.version = 5, .payload = Merge("a", "5")}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 5);
}

TEST(DeadLetterReplay, DiscardsItAndLetsTheRestGoOn) {
  for (const bool may_park : {true, false}) {
    GroupWorld world;
    world.may_park = may_park;
    const auto group = world.NewGroup();
    world.Publish({{.version = 1}, {.version = 2, .payload = "bad"}, {.version = 3}});
    ASSERT_TRUE(world.AwaitDrained());
    ASSERT_EQ(world.Count("SELECT version FROM rm.items"), 1);
    Operator ann(world);
    ASSERT_TRUE(ann.Resolve(ann.FirstDead(), false).ok());
    EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 3);
    EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
    world.Publish({{.version = 4}});
    ASSERT_TRUE(world.AwaitDrained());
    EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 4);
    EXPECT_FALSE(ann.Resolve(1, true).ok());  // resolved is resolved
  }
}

TEST(DeadLetterReplay, KeepsWaitingForTheNextDeadVersion) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.version = 1},
                 {.version = 2, .payload = "bad"},
                 {.version = 3},
                 {.version = 4, .payload = "bad"},
                 {.version = 5}});
  ASSERT_TRUE(world.AwaitDrained());
  Operator ann(world);
  ASSERT_TRUE(ann.Resolve(ann.FirstDead(), false).ok());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 3);
  EXPECT_EQ(world.Count("SELECT blocked_version FROM feed_state.key_state"), 4);
  ASSERT_TRUE(ann.Resolve(ann.FirstDead(), false).ok());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 5);
}

// It was replayed while an older one was dead still, so it waited; the database refuses it then.
TEST(DeadLetterReplay, OneThatWaitedAndDiesAgainIsOpenAgain) {
  const std::string ill =
      Running("DO $$ BEGIN IF to_regclass('rm.cure') IS NULL THEN RAISE 'ill'; END IF; END $$");
  GroupWorld world;
  auto group = world.NewGroup();
  world.Publish({{.version = 1}, {.version = 3, .payload = ill}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 2, .payload = ill}, {.version = 4}});
  ASSERT_TRUE(world.AwaitDrained());
  const auto id = [&](int version) {
    return world.Count(
        fmt::format("SELECT id FROM feed_state.dead_letters WHERE version = {}", version));
  };
  const auto state = [&] {
    return world.Value("SELECT state FROM feed_state.dead_letters WHERE version = 3");
  };
  Operator ann(world);
  ASSERT_TRUE(ann.Resolve(id(3), true).ok());
  ASSERT_EQ(state(), "replayed");
  ASSERT_TRUE(ann.Resolve(id(2), false).ok());
  group = world.NewGroup("another");  // which releases what waits
  EXPECT_TRUE(world.Await([&] { return state() == "dead"; }));
  EXPECT_EQ(world.Count("SELECT blocked_version FROM feed_state.key_state"), 3);
  world.database.Run("CREATE TABLE rm.cure ()");
  ASSERT_TRUE(ann.Resolve(id(3), true).ok());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 4);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
}

TEST(DeadLetterReplay, AfterAResetForwardNothingWaitsForWhatWasLeftOut) {
  GroupWorld world;
  const auto merge = [](int64_t version) {
    return TestEvent{.version = version, .payload = Merge("a", std::to_string(version))};
  };
  auto group = world.NewGroup();
  world.Publish({merge(1), {.version = 2, .payload = "bad"}, merge(3)});
  ASSERT_TRUE(world.AwaitDrained());
  group.reset();
  world.Publish({merge(4), merge(5)});
  Operator ann(world);
  const offsets::Resets resets{state::Schema("feed_state"), ConsumerGroup("feed")};
  ASSERT_TRUE(resets
                  .Run(ann.connection(), {.seek = state::SeekTarget::To(Clock::System().Now()),
                                          .operator_name = "ann",
                                          .reason = "a test",
                                          .fence = Millis(1)})
                  .ok());
  world.Publish({merge(6)});
  group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 2);
  ASSERT_TRUE(ann.Resolve(ann.FirstDead(), false).ok());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 6);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  // From here on a gap is a gap again.
  world.Publish({merge(8), merge(10)});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 8);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 1);
}

// The key gets new events all the while: none may overtake, none may be forgotten.
TEST(DeadLetterReplay, HoldsTheOrderWhileNewEventsComeIn) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish(
      {{.version = 1, .payload = Merge("a", "1")}, {.version = 2, .payload = Curable("b")}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run("CREATE TABLE rm.cure ()");
  constexpr int kLast = 60;
  std::atomic<bool> half{false};
  std::thread publisher([&] {
    for (int v = 3; v <= kLast; ++v) {
      world.Publish({{.version = v, .payload = Merge("a", std::to_string(v))}});
      if (v == kLast / 2) half = true;
    }
  });
  EXPECT_TRUE(testing::Eventually([&] { return half.load(); }));
  Operator ann(world);
  EXPECT_TRUE(ann.Resolve(ann.FirstDead(), true).ok());
  publisher.join();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_TRUE(world.Await([&] { return world.Count("SELECT version FROM rm.items") == kLast; }));
  EXPECT_EQ(world.Count("SELECT n FROM rm.counters"), kLast);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM (SELECT version < lag(version) OVER (ORDER BY seq) "
                        "AS bad FROM rm.history) h WHERE bad"),
            0);
}

// What was decided about an event holds in the next life of the read model.
class Decided : public ::testing::Test {
 protected:
  Decided() {
    world_.options.ack_fence = Millis(100);
    pubsub::Subscription subscription = *world_.bus.admin().GetSubscription(kSubscription);
    subscription.retain_acked = true;
    EXPECT_TRUE(
        world_.bus.admin().UpdateSubscription(subscription, {"retain_acked_messages"}).ok());
  }
  void Reset() {
    const auto connection = world_.database.Connect();
    const auto done = offsets::Resets(state::Schema("feed_state"), ConsumerGroup("feed"))
                          .Run(*connection, {.seek = state::SeekTarget::To(WallTime()),
                                             .mode = offsets::ResetMode::kEmpty,
                                             .tables = {"rm.items", "rm.counters"},
                                             .operator_name = "ada",
                                             .reason = "again",
                                             .fence = Millis(200)});
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(world_.Await([&] { return Model().ends_with(fmt::format("|{}", last_)); }))
        << Model();
  }
  std::string Model() {
    return world_.Value(
        "SELECT coalesce(string_agg(a, '' ORDER BY id), '') || '|' || "
        "coalesce(max(version), 0) FROM rm.items");
  }
  std::string Letters() {
    return world_.Value(
        "SELECT string_agg(concat_ws(' ', version, dead_letters.state, CASE WHEN blocks THEN "
        "'blocks' END, "
        "resolved_by, note), ', ' ORDER BY version) FROM feed_state.dead_letters JOIN "
        "feed_state.slots USING (generation)");
  }

  GroupWorld world_;
  int64_t last_ = 4;
};

TEST_F(Decided, WhatWasDiscardedDiesAgainWithoutAskingAgain) {
  const auto group = world_.NewGroup();
  Operator ann(world_);
  for (int64_t version = 1; version <= last_; ++version) {
    world_.Publish(
        {{.version = version,
          .payload = version == 2 ? "not json" : Merge("a", fmt::format("{}", version))}});
  }
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(Letters(), "2 dead blocks");
  ASSERT_TRUE(ann.Resolve(ann.FirstDead(), /*replay=*/false).ok());
  EXPECT_EQ(Model(), "4|4");
  for (int i = 0; i < 2; ++i) {
    Reset();
    EXPECT_EQ(Model(), "4|4") << "what came behind it did not wait";
    EXPECT_EQ(Letters(), "2 discarded ann decided before: ");
  }
  EXPECT_EQ(group->status().counts.dead, 1) << "it was not written as a new one";
}

TEST_F(Decided, OneThatWasNotDecidedAboutOrWasReplayedIsAskedAboutAgain) {
  const auto group = world_.NewGroup();
  Operator ann(world_);
  last_ = 1;
  world_.Publish({{.version = 1, .payload = Merge("a", "1")},
                  {.version = 2, .payload = Curable("b")},
                  {.version = 3, .payload = Merge("a", "3")}});
  ASSERT_TRUE(world_.AwaitDrained());
  Reset();
  ASSERT_TRUE(world_.Await([&] { return Letters() == "2 dead blocks"; })) << Letters();
  world_.database.Run("CREATE TABLE rm.cure ()");
  ASSERT_TRUE(ann.Resolve(ann.FirstDead(), /*replay=*/true).ok());
  world_.database.Run("DROP TABLE rm.cure");
  EXPECT_EQ(Model(), "3|3");
  Reset();
  EXPECT_TRUE(world_.Await([&] { return Letters() == "2 dead blocks"; })) << Letters();
}

TEST_F(Decided, QuarantineHoldsToo) {
  const auto group = world_.NewGroup();
  Operator ann(world_);
  last_ = 1;
  world_.Publish(
      {{.version = 1, .payload = Merge("a", "1")}, {.version = 2, .payload = "not json"}});
  ASSERT_TRUE(world_.AwaitDrained());
  const auto moved =
      ann.desk().Quarantine(ann.connection(), {ann.FirstDead()}, true, "ann", "ask the source");
  ASSERT_EQ(*moved, 1);
  Reset();
  EXPECT_TRUE(world_.Await([&] {
    return Letters() == "2 quarantined blocks decided before: ask the source";
  })) << Letters();
}

TEST(DeadLetters, FindsShowsAndQuarantines) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish(
      {{.id = "a", .payload = "bad"}, {.id = "b", .payload = "bad"}, {.id = "b", .version = 2}});
  ASSERT_TRUE(world.AwaitDrained());
  Operator ann(world);
  EXPECT_THAT(*ann.desk().List(ann.connection(), {}, 100), SizeIs(2));
  const auto found = *ann.desk().List(ann.connection(), {.key = "item/b"}, 100);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found.front().waiting, 1);
  EXPECT_EQ(ann.desk().Show(ann.connection(), found.front().id, false)->payload, "");
  EXPECT_EQ(ann.desk().Show(ann.connection(), found.front().id, true)->payload, "bad");
  EXPECT_EQ(*ann.desk().Quarantine(ann.connection(), {found.front().id}, true, "ann", "look"), 1);
  EXPECT_FALSE(ann.Resolve(found.front().id, true).ok());
  EXPECT_EQ(world.Count("SELECT blocked_version FROM feed_state.key_state WHERE "
                        "aggregate_key = 'item/b'"),
            1);
  EXPECT_EQ(*ann.desk().Quarantine(ann.connection(), {found.front().id}, false, "ann", ""), 1);
  EXPECT_TRUE(ann.Resolve(found.front().id, false).ok());
}

}  // namespace
}  // namespace lockstep::operations
