// G1, G4 and G6: nothing is lost, nothing is half done, and a fault stays where it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

using ::testing::HasSubstr;

constexpr char kDeadLetters[] = "projects/p/topics/items.feed.dlq";

TEST(Failure, IsolatesPoisonAtEveryPositionOfABatch) {
  for (int position = 0; position < 16; ++position) {
    GroupWorld world;
    world.options.lanes = 1;
    std::vector<TestEvent> events;
    for (int i = 0; i < 16; ++i) {
      events.push_back({.id = "k" + std::to_string(i),
                        .payload = i == position ? Running(kDivide) : Replace("fine")});
    }
    world.Publish(events);
    const auto group = world.NewGroup();
    ASSERT_TRUE(world.AwaitDrained()) << position;
    EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 15) << position;
    EXPECT_EQ(world.Count("SELECT sum(n) FROM rm.counters"), 15) << position;
    EXPECT_EQ(world.Value("SELECT aggregate_key FROM feed_state.dead_letters"),
              "item/k" + std::to_string(position));
    EXPECT_EQ(world.Value("SELECT code FROM feed_state.dead_letters"), "EVENT.REFUSED_BY_DATABASE");
    EXPECT_GE(world.Count("SELECT attempts FROM feed_state.dead_letters"), 5);
  }
}

TEST(Failure, ParksTheLaterEventsOfAPoisonedAggregateAndNoOthers) {
  GroupWorld world;
  world.options.lanes = 1;
  world.Publish({{.id = "a", .version = 1},
                 {.id = "a", .version = 2, .payload = "not json"},
                 {.id = "a", .version = 3},
                 {.id = "b", .version = 1},
                 {.id = "a", .version = 4}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items WHERE id = 'a'"), 1);
  EXPECT_EQ(world.Count("SELECT version FROM rm.items WHERE id = 'b'"), 1);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked WHERE reason = 'poison'"), 2);
  EXPECT_EQ(world.Count("SELECT blocked_version FROM feed_state.key_state WHERE "
                        "aggregate_key = 'item/a'"),
            2);
  // What comes later waits too.
  world.Publish({{.id = "a", .version = 5}, {.id = "b", .version = 2}});
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 3);
  EXPECT_EQ(world.Count("SELECT version FROM rm.items WHERE id = 'b'"), 2);
  EXPECT_TRUE(group->status().ready());
}

TEST(Failure, LetsLaterEventsThroughWithOnPoisonSkip) {
  GroupWorld world;
  world.options.on_poison = OnPoison::kSkip;
  world.Publish({{.version = 1, .payload = Merge("a", "1")},
                 {.version = 2, .payload = "not json"},
                 {.version = 3, .payload = Merge("b", "3")}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 3);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  EXPECT_EQ(world.DeadLetters(), 1);
}

TEST(Failure, KeepsEveryMalformedMessageWithItsReasonAndCrashesOnNone) {
  GroupWorld world;
  int made = 0;
  const auto publish = [&](const std::function<void(pubsub::Message&)>& spoil) {
    pubsub::Message message = TestEvent{.id = "m" + std::to_string(++made)}.Message();
    spoil(message);
    world.PublishMessage(std::move(message));
  };
  for (const char* name : {"event_id", "event_type", "aggregate_type", "aggregate_id", "version",
                           "schema_version", "occurred_at", "content_type"}) {
    publish([&](auto& m) { m.attributes.erase(name); });
    publish([&](auto& m) { m.attributes[name] = "\u00e4 broken '\"\\ {}"; });
  }
  publish([](auto& m) { m.data.clear(); });
  publish([](auto& m) { m.attributes.clear(); });
  publish([](auto& m) { m.attributes["x"] = std::string("\0", 1); });
  publish([](auto& m) {
    m.attributes["tenant_id"] = std::string(1024, 't');
    m.attributes["aggregate_type"] = std::string(1024, 'a');
  });
  publish([](auto& m) { m.data = std::string("\0\1\2", 3); });
  const int poisoned = made - 3;  // a broken event_type, aggregate_type or aggregate_id is a text
  world.Publish({{.id = "fine"}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_TRUE(group->status().ready()) << group->status().reason;
  EXPECT_EQ(world.DeadLetters(), poisoned);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.dead_letters WHERE reason = ''"), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items WHERE id = 'fine'"), 1);
}

TEST(Failure, TakesNoEventForAHeartbeat) {
  GroupWorld world;
  pubsub::Message message = TestEvent{.id = "a"}.Message();
  message.attributes["lockstep_heartbeat"] = "7";
  world.PublishMessage(std::move(message));
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 1);
}

TEST(Failure, HaltsTheGroupOnAMissingTableAndGoesOnOnceItIsThere) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a"}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run("ALTER TABLE rm.counters RENAME TO hidden");
  world.Publish({{.id = "b"}, {.id = "c"}});
  ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_THAT(group->status().reason, HasSubstr("rm.counters"));
  EXPECT_FALSE(group->status().ready());
  EXPECT_EQ(world.DeadLetters(), 0);
  world.database.Run("ALTER TABLE rm.hidden RENAME TO counters");
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.counters"), 3);
}

TEST(Failure, HaltsForGoodWhenTheDeadLettersRunPastTheirBudget) {
  GroupWorld world;
  world.options.lanes = 1;
  world.options.max_batch = 1;
  world.options.dead_letter_budget = 3;
  std::vector<TestEvent> events;
  for (int i = 0; i < 10; ++i) events.push_back({.id = "k" + std::to_string(i), .payload = "bad"});
  world.Publish(events);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_THAT(group->status().reason, HasSubstr("dead letters"));
  EXPECT_EQ(world.DeadLetters(), 3);
  EXPECT_EQ(world.bus.Backlog(kSubscription), 7);
}

TEST(Failure, WritesWhatTheBudgetAllowsOfABatchBeforeItHalts) {
  GroupWorld world;
  world.options.lanes = 1;
  world.options.dead_letter_budget = 3;
  std::vector<TestEvent> events;
  for (int i = 0; i < 10; ++i) events.push_back({.id = "k" + std::to_string(i), .payload = "bad"});
  world.Publish(events);
  for (const int dead : {3, 6, 9}) {  // each restart comes further
    const auto group = world.NewGroup();
    ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
    EXPECT_THAT(group->status().reason, HasSubstr("more than 3 dead letters"));
    EXPECT_EQ(world.DeadLetters(), dead);
    EXPECT_EQ(world.bus.Backlog(kSubscription), 10 - dead);
  }
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_TRUE(group->status().ready());
}

TEST(Failure, GoesOnAfterAMissingTableAlthoughTheBudgetIsSpent) {
  GroupWorld world;
  world.options.dead_letter_budget = 1;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a", .payload = "bad"}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run("ALTER TABLE rm.counters RENAME TO hidden");
  world.Publish({{.id = "b"}});
  ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_THAT(group->status().reason, HasSubstr("rm.counters"));
  world.database.Run("ALTER TABLE rm.hidden RENAME TO counters");
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.counters"), 1);
}

TEST(Failure, LeavesOtherGroupsRunningWhenOneHalts) {
  GroupWorld world;
  ASSERT_TRUE(world.bus.admin()
                  .CreateSubscription(
                      {.name = "projects/p/subscriptions/other", .topic = kTopic, .ordering = true})
                  .ok());
  world.options.dead_letter_budget = 1;
  const auto halted = world.NewGroup();
  world.options.name = "other";
  world.options.subscription = "projects/p/subscriptions/other";
  world.options.dead_letter_budget = 0;
  const auto other = world.NewGroup();
  world.Publish({{.id = "a", .payload = "bad"}, {.id = "b", .payload = "bad"}, {.id = "c"}});
  ASSERT_TRUE(world.Await([&] { return halted->status().state == GroupState::kHalted; }));
  ASSERT_TRUE(
      world.bus.Await([&] { return world.bus.Backlog("projects/p/subscriptions/other") == 0; }));
  EXPECT_TRUE(other->status().ready());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 1);
}

// Somebody else writes the read model and takes its rows in another order.
TEST(Failure, TriesAgainAfterADeadlock) {
  GroupWorld world;
  world.options.lanes = 1;
  world.options.linger = Millis(200);  // both in one transaction
  world.database.Run("INSERT INTO rm.items VALUES ('a', 1), ('b', 1)");
  const auto session = world.database.Connect();
  auto stranger = session->Begin();
  // The runner finds the deadlock first, and is its victim.
  ASSERT_TRUE(stranger->Execute("SET LOCAL deadlock_timeout = '1min'").ok());
  ASSERT_TRUE(stranger->Execute("UPDATE rm.items SET b = 'x' WHERE id = 'b'").ok());
  world.Publish({{.id = "a", .version = 2}, {.id = "b", .version = 2}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] {
    return world.Count(
               "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "
               "datname = current_database()") > 0;
  }));
  ASSERT_TRUE(stranger->Execute("UPDATE rm.items SET b = 'x' WHERE id = 'a'").ok());
  ASSERT_TRUE(stranger->Commit().ok());
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_GE(group->status().counts.failures, 1);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items WHERE version = 2"), 2);
  EXPECT_EQ(world.Count("SELECT sum(n) FROM rm.counters"), 2);
  EXPECT_EQ(world.DeadLetters(), 0);
}

TEST(Failure, HealsAConnectionThatIsKilledInTheMiddleOfATransaction) {
  GroupWorld world;
  world.database.Run("CREATE SEQUENCE rm.tries");
  world.Publish({{.payload = Running("SELECT CASE WHEN nextval('rm.tries') < 3 "
                                     "THEN pg_terminate_backend(pg_backend_pid()) END")}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT n FROM rm.counters"), 1);
  EXPECT_EQ(world.DeadLetters(), 0);
}

// The commit happens and the answer is lost: a deferred trigger ends the session when all is done.
TEST(Failure, SettlesACommitWhoseAnswerWasLost) {
  GroupWorld world;
  world.database.Run(R"(
    CREATE TABLE rm.killed (once boolean);
    CREATE FUNCTION rm.kill() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF (SELECT count(*) FROM rm.killed) = 0 THEN
        INSERT INTO rm.killed VALUES (true);
        PERFORM pg_terminate_backend(pg_backend_pid());
      END IF;
      RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER kill AFTER INSERT ON rm.items
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION rm.kill();)");
  world.Publish({{.id = "a"}, {.id = "b"}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().counts.failures > 0; }));
  // Whether or not the first try had committed: everything is there, once.
  world.database.Run("DROP TRIGGER kill ON rm.items");
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 2);
  EXPECT_EQ(world.Count("SELECT sum(n) FROM rm.counters"), 2);
  EXPECT_EQ(world.DeadLetters(), 0);
}

TEST(Failure, GivesPoisonBackToPubsubWhenToldTo) {
  GroupWorld world(/*ordered=*/false, kDeadLetters);
  world.may_park = false;
  world.options.dead_letter = DeadLetterTo::kPubsub;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a", .payload = "bad", .ordered = false}, {.id = "b", .ordered = false}});
  ASSERT_TRUE(world.bus.Await([&] { return world.bus.released().size() >= 2; }));
  EXPECT_TRUE(world.Await([&] { return world.Count("SELECT count(*) FROM rm.items") == 1; }));
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 1);
}

TEST(Failure, GivesAConflictBackToPubsubTooAndAppliesTheRest) {
  GroupWorld world(/*ordered=*/false, kDeadLetters);
  world.may_park = false;
  world.options.dead_letter = DeadLetterTo::kPubsub;
  world.options.lanes = 1;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a", .version = 1, .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.id = "a", .version = 1, .event_id = Uuid(999), .ordered = false},
                 {.id = "b", .ordered = false}});
  ASSERT_TRUE(world.bus.Await([&] { return world.bus.released().size() >= 2; }));
  EXPECT_TRUE(world.Await([&] { return world.Count("SELECT count(*) FROM rm.items") == 2; }));
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 2) << "it may come again";
  EXPECT_EQ(world.Count("SELECT sum(n) FROM rm.counters"), 2);
}

TEST(Failure, RefusesPubsubDeadLettersWhereTheyWouldWedgeSomething) {
  struct Case {
    bool ordered;
    const char* dead_letter_topic;
    bool may_park;
    const char* reason;
  };
  for (const Case& c : {Case{true, kDeadLetters, false, "unordered subscriptions only"},
                        Case{false, "", false, "for ever; give it one"},
                        Case{false, kDeadLetters, true, "on_gap: apply"}}) {
    GroupWorld world(c.ordered, c.dead_letter_topic);
    world.may_park = c.may_park;
    world.options.dead_letter = DeadLetterTo::kPubsub;
    const auto group = world.NewGroup();
    ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
    EXPECT_THAT(group->status().reason, HasSubstr(c.reason));
  }
}

// A batch that waited for a reset must read the epoch that the reset has made.
TEST(Failure, ReadsWhatIsCommittedWhateverTheServersDefaultIs) {
  GroupWorld world;
  world.database.Run(
      "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = "
      "serializable', current_database()); EXECUTE format('ALTER DATABASE %I SET "
      "synchronous_commit = off', current_database()); END $$");
  world.Publish({{.payload = Running("INSERT INTO rm.history (id) VALUES (concat_ws('/', "
                                     "current_setting('transaction_isolation'), "
                                     "current_setting('synchronous_commit')))")}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT id FROM rm.history WHERE version IS NULL"), "read committed/on");
}

TEST(Failure, RefusesAnInboxThatForgetsSoonerThanTheSubscription) {
  GroupWorld world;
  world.options.inbox_retention = Millis(3600'000);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_THAT(group->status().reason, HasSubstr("inbox_retention"));
  EXPECT_EQ(group->inbox_retention(), Millis(0)) << "nothing is forgotten meanwhile";
  world.options.force_inbox_retention = true;
  const auto forced = world.NewGroup("forced");
  EXPECT_TRUE(world.Await([&] { return forced->status().ready(); }));
}

TEST(Failure, SaysWhichSubscriptionIsMissing) {
  GroupWorld world;
  world.options.subscription = "projects/p/subscriptions/nowhere";
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_THAT(group->status().reason, HasSubstr("projects/p/subscriptions/nowhere"));
}

}  // namespace
}  // namespace lockstep::runner
