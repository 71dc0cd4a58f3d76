// Who is blamed for a fault: the event that causes it, and nobody else.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/testing/direct_batch.h"
#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

using ::testing::HasSubstr;

// Waits until a statement of a lane hangs.
bool AwaitHanging(GroupWorld& world) {
  return world.Await([&] {
    return world.Count(
               "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND "
               "datname = current_database()") > 0;
  });
}

TEST(Blame, LetsNoParkedEventDiePastTheBudget) {
  GroupWorld world(/*ordered=*/false);
  world.options.dead_letter_budget = 1;
  auto group = world.NewGroup();
  world.Publish(
      {{.id = "other", .payload = "bad", .ordered = false}, {.version = 1, .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 3, .payload = MergeRunning(kDivide), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_EQ(world.DeadLetters(), 1);
  world.Publish({{.version = 2, .ordered = false}});
  ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_THAT(group->status().reason, HasSubstr("more than 1 dead letters"));
  EXPECT_EQ(world.DeadLetters(), 1);
  EXPECT_EQ(world.Count("SELECT version FROM rm.items WHERE id = 'k1'"), 2);
  EXPECT_EQ(world.Count("SELECT version FROM feed_state.parked"), 3);
  group.reset();
  group = world.NewGroup();
  EXPECT_TRUE(world.Await([&] { return world.DeadLetters() == 2; }));
}

TEST(Blame, BringsAnEventThatAlwaysTimesOutToTheDeadLetters) {
  GroupWorld world;
  world.options.lanes = 1;
  world.options.statement_timeout = Millis(100);
  world.options.transient_tries = 2;
  std::vector<TestEvent> events;
  for (int i = 0; i < 4; ++i) {
    events.push_back({.id = "k" + std::to_string(i),
                      .payload = i == 2 ? Running("SELECT pg_sleep(60)") : Replace("fine")});
  }
  world.Publish(events);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 3);
  EXPECT_EQ(world.Value("SELECT code FROM feed_state.dead_letters"), "EVENT.NEVER_COMMITS");
  EXPECT_EQ(world.Value("SELECT aggregate_key FROM feed_state.dead_letters"), "item/k2");
}

// Its statement is cancelled by ourselves, again and again, so that the lane ends.
TEST(Blame, BlamesNoEventForWhatWasCancelledToStop) {
  GroupWorld world;
  world.options.transient_tries = 1;
  world.options.max_attempts = 1;
  world.drain = Millis(50);
  world.Publish({{.payload = Running("SELECT pg_sleep(60)")}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(AwaitHanging(world));
  group->Stop();
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_EQ(world.bus.Backlog(kSubscription), 1);
}

TEST(Blame, BlamesNoParkedEventForWhatWasCancelledToStop) {
  GroupWorld world(/*ordered=*/false);
  world.options.statement_timeout = Millis(500);
  world.options.transient_tries = 1;
  world.drain = Millis(50);
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 3, .payload = MergeRunning("SELECT pg_sleep(60)"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 2, .ordered = false}});
  // It goes first and alone, then the one behind it is on its own.
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_TRUE(AwaitHanging(world));
  group->Stop();
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 2);
  EXPECT_EQ(world.Count("SELECT version FROM feed_state.parked"), 3);
}

TEST(Blame, IsolatesPoisonToTheEndWhenItsGroupDrains) {
  GroupWorld world;
  world.options.lanes = 1;
  std::vector<TestEvent> events;
  for (int i = 0; i < 4; ++i) {
    events.push_back({.id = "k" + std::to_string(i),
                      .payload = i == 2 ? Running("DO $$ BEGIN PERFORM pg_sleep(0.1); RAISE "
                                                  "EXCEPTION 'no' USING ERRCODE = '22000'; END $$")
                                        : Replace("fine")});
  }
  world.Publish(events);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().counts.failures > 0; }));
  group->Stop();
  EXPECT_EQ(world.bus.Backlog(kSubscription), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 3);
  EXPECT_EQ(world.DeadLetters(), 1);
}

TEST(Blame, TriesAgainWhatFailedInPassing) {
  GroupWorld world;
  world.database.Run("CREATE SEQUENCE rm.tries");
  for (const char* sqlstate : {"40P01", "40001", "55P03", "53200"}) {
    world.database.Run("ALTER SEQUENCE rm.tries RESTART");
    const auto group = world.NewGroup(sqlstate);
    const std::string fail = fmt::format(
        "DO $$ BEGIN IF nextval('rm.tries') < 3 THEN RAISE EXCEPTION 'no' USING ERRCODE = '{}'; "
        "END IF; END $$",
        sqlstate);
    world.Publish({{.id = sqlstate, .payload = Running(fail)}});
    ASSERT_TRUE(world.AwaitDrained()) << sqlstate;
    EXPECT_EQ(world.Count(fmt::format("SELECT n FROM rm.counters WHERE id = '{}'", sqlstate)), 1);
    EXPECT_EQ(group->status().counts.failures, 2) << sqlstate;
  }
  EXPECT_EQ(world.DeadLetters(), 0);
}

// The poison beside it makes nobody else suspect: what fails in passing keeps all its tries.
TEST(Blame, DoesNotSuspectABatchOfWhichOneMessageIsRefused) {
  GroupWorld world;
  world.options.lanes = 1;
  world.options.max_attempts = 2;
  world.database.Run("CREATE SEQUENCE rm.tries");
  // Fails in passing with the other one, then is through and the other one fails; then once alone.
  world.Publish({{.id = "a",
                  .payload = Running("DO $$ BEGIN IF nextval('rm.tries') IN (1, 3) THEN RAISE "
                                     "EXCEPTION 'no' USING ERRCODE = '40001'; END IF; END $$")},
                 {.id = "b", .payload = Running(kDivide)}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT last_value FROM rm.tries"), 4) << "they came in one batch";
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items WHERE id = 'a'"), 1);
  EXPECT_EQ(world.Value("SELECT aggregate_key FROM feed_state.dead_letters"), "item/b");
  EXPECT_EQ(world.DeadLetters(), 1);
}

// A slow server made it a suspect; then the server was restarted.
TEST(Blame, CountsNoLostConnectionAgainstASuspect) {
  GroupWorld world;
  world.options.transient_tries = 2;
  world.options.max_attempts = 4;
  world.database.Run("CREATE SEQUENCE rm.tries");
  world.Publish({{.payload = Running("DO $$ DECLARE n int := nextval('rm.tries'); BEGIN "
                                     "IF n IN (3, 5) THEN PERFORM pg_terminate_backend("
                                     "pg_backend_pid()); PERFORM pg_sleep(60); ELSIF n < 5 THEN "
                                     "RAISE EXCEPTION 'no' USING ERRCODE = '57014'; "
                                     "END IF; END $$")}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT last_value FROM rm.tries"), 6);
  EXPECT_EQ(world.Count("SELECT sum(n) FROM rm.counters"), 1);
  EXPECT_EQ(world.DeadLetters(), 0);
}

// But one that takes its session down each time is found.
TEST(Blame, FindsAnEventThatEndsEverySessionThatWritesIt) {
  GroupWorld world;
  world.options.lanes = 1;
  world.options.transient_tries = 2;
  world.options.max_attempts = 4;
  world.Publish({{.id = "good"},
                 {.id = "bad",
                  .payload = Running("DO $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); "
                                     "PERFORM pg_sleep(60); END $$")}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT aggregate_key FROM feed_state.dead_letters"), "item/bad");
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items WHERE id = 'good'"), 1);
}

// The probe commits on a full disk: it needs no new page.
TEST(Blame, BlamesNobodyForAFullDisk) {
  GroupWorld world;
  world.options.transient_tries = 3;
  world.database.Run("CREATE SEQUENCE rm.tries");
  // And what fails in passing afterwards has all its tries.
  world.Publish({{.payload = Running("DO $$ DECLARE n int := nextval('rm.tries'); BEGIN "
                                     "IF n < 7 THEN RAISE EXCEPTION 'no' USING ERRCODE = CASE "
                                     "WHEN n < 5 THEN '53100' ELSE '40001' END; END IF; END $$")}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT sum(n) FROM rm.counters"), 1);
  EXPECT_EQ(world.DeadLetters(), 0);
}

TEST(Blame, BlamesAParkedEventAndNotTheOneThatReleasesIt) {
  GroupWorld world(/*ordered=*/false);
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .payload = Merge("a", "1"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  std::string divides = Merge("a", "3");
  divides.pop_back();
  divides += R"(,"sql":"SELECT 1 / 0"})";
  world.Publish({{.version = 3, .payload = divides, .ordered = false},
                 {.version = 4, .payload = Merge("a", "4"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 2, .payload = Merge("b", "2"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_TRUE(world.Await([&] { return world.DeadLetters() == 1; }));
  EXPECT_EQ(world.Count("SELECT version FROM feed_state.dead_letters"), 3);
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 2);
  EXPECT_EQ(world.Count("SELECT version FROM feed_state.parked"), 4);
}

TEST(Blame, BlamesNobodyWhileAResetHoldsTheEpoch) {
  GroupWorld world;
  world.options.statement_timeout = Millis(100);
  world.options.transient_tries = 1;
  world.options.max_attempts = 1;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  const auto session = world.database.Connect();
  auto reset = session->Begin();
  const state::Epochs epochs(state::Schema("feed_state"), ConsumerGroup("feed"));
  ASSERT_TRUE(epochs.LockExclusively(*reset).ok());
  world.Publish({{.version = 1}});
  ASSERT_TRUE(world.Await([&] { return group->status().counts.failures >= 4; }));
  ASSERT_TRUE(reset->Rollback().ok());
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 1);
  EXPECT_EQ(group->status().counts.deliveries, 1) << "it halted, and gave back what it had";
}

TEST(Blame, CountsEveryFailedTransactionOnce) {
  GroupWorld world;
  world.options.transient_tries = 2;
  world.options.max_attempts = 5;
  world.database.Run("CREATE SEQUENCE rm.tries");
  world.Publish({{.payload = Running("DO $$ BEGIN IF nextval('rm.tries') < 5 THEN RAISE EXCEPTION "
                                     "'no' USING ERRCODE = '40001'; END IF; END $$")}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.DeadLetters(), 0) << "it failed four times, and five are allowed";
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 1);
}

TEST(Blame, SaysHowOftenAParkedEventFailed) {
  GroupWorld world(/*ordered=*/false);
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 3, .payload = MergeRunning(kDivide), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.Publish({{.version = 2, .ordered = false}});
  ASSERT_TRUE(world.Await([&] { return world.DeadLetters() == 1; }));
  EXPECT_GE(world.Count("SELECT attempts FROM feed_state.dead_letters"), 5);
}

// Like one that comes from the bus (Order, AForkThatDiesHasChangedNothing).
TEST(Blame, AParkedForkThatDiesHasChangedNothing) {
  GroupWorld world(/*ordered=*/false);
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  const std::string side = "INSERT INTO rm.history (id, version) VALUES ('side', 3)";
  world.Publish({{.version = 3, .payload = MergeRunning(side), .ordered = false},
                 {.version = 4, .payload = Merge("b", "four"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  // Version 3 is there, from another event.
  world.database.Run("UPDATE rm.items SET version = 3");
  world.Publish({{.version = 2, .payload = Merge("b", "two"), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT version FROM rm.items") == 4; }));
  EXPECT_EQ(world.Value("SELECT code || version || blocks FROM feed_state.dead_letters"),
            "EVENT.VERSION_CONFLICT3false");
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.history WHERE id = 'side'"), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 0);
  EXPECT_EQ(group->status().counts.superseded, 1);
}

// What is skipped is settled by its death; the version before it is not, and may still come.
TEST(Blame, SkipsNoVersionThatMayStillCome) {
  GroupWorld world(/*ordered=*/false);
  world.options.on_poison = OnPoison::kSkip;
  const auto group = world.NewGroup();
  const auto publish = [&](int64_t version, const std::string& payload) {
    world.Publish({{.version = version, .payload = payload, .ordered = false}});
    ASSERT_TRUE(world.AwaitDrained());
  };
  publish(1, Merge("a", "one"));
  publish(3, "not json");
  publish(4, Merge("b", "four"));
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 1);
  publish(2, Merge("a", "two"));
  ASSERT_TRUE(world.Await([&] { return world.Count("SELECT version FROM rm.items") == 4; }));
  EXPECT_EQ(world.Value("SELECT a || b FROM rm.items"), "twofour");
  EXPECT_EQ(world.Value("SELECT string_agg(version::text, ',') FROM feed_state.dead_letters"), "3");
}

TEST(Blame, HaltsWhenParkedEventsTurnOutToBeMoreThanTheBudget) {
  GroupWorld world(/*ordered=*/false);
  world.options.on_poison = OnPoison::kSkip;
  world.options.dead_letter_budget = 1;
  const auto group = world.NewGroup();
  for (const int64_t version : {1, 3, 4, 2}) {
    world.Publish({{.version = version,
                    .payload = version > 2 ? "not json" : Merge("a", "x"),
                    .ordered = false}});
    ASSERT_TRUE(world.AwaitDrained());
  }
  ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_THAT(group->status().reason, HasSubstr("more than 1 dead letters"));
  EXPECT_EQ(world.DeadLetters(), 1);
  EXPECT_EQ(world.Count("SELECT version FROM feed_state.parked"), 4);
}

// A dead letter that comes again is none more.
TEST(Blame, AsksTheBudgetOnlyForWhatWouldDie) {
  GroupWorld world;
  world.options.dead_letter_budget = 1;
  const auto group = world.NewGroup();
  for (int i = 0; i < 2; ++i) {
    world.Publish({{.payload = "not json"}});
    ASSERT_TRUE(world.AwaitDrained());
  }
  EXPECT_TRUE(group->status().ready()) << group->status().reason;
  EXPECT_EQ(world.DeadLetters(), 1);
}

// The refusal of the one beside it does not make a parked event suspect.
TEST(Blame, LetsAParkedEventTryAgainWhatFailedInPassing) {
  GroupWorld world(/*ordered=*/false);
  world.options.max_attempts = 1;
  world.database.Run("CREATE SEQUENCE rm.tries");
  const auto group = world.NewGroup();
  world.Publish({{.version = 1, .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  // With the other one it is through; then it is alone, and fails once.
  world.Publish({{.version = 3,
                  .payload = MergeRunning("DO $$ BEGIN IF nextval('rm.tries') = 2 THEN RAISE "
                                          "EXCEPTION 'no' USING ERRCODE = '40001'; END IF; END $$"),
                  .ordered = false},
                 {.version = 4, .payload = MergeRunning(kDivide), .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  // In a transaction of its own: what waits comes when it has found its end.
  world.Publish({{.version = 2, .payload = "not json", .ordered = false}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run("UPDATE feed_state.key_state SET blocked_version = NULL, settled_version = 2");
  const auto another = world.NewGroup("another");
  ASSERT_TRUE(world.Await([&] { return world.DeadLetters() == 2; }));
  EXPECT_EQ(world.Count("SELECT max(version) FROM feed_state.dead_letters"), 4);
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 3);
  EXPECT_EQ(world.Count("SELECT last_value FROM rm.tries"), 3);
}

TEST(Blame, TriesAgainToWriteADeadLetterOfAParkedEvent) {
  GroupWorld world(/*ordered=*/false);
  world.options.transient_tries = 2;
  world.options.max_attempts = 2;
  const std::string never =
      "DO $$ BEGIN PERFORM nextval('rm.runs'); RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END "
      "$$";
  world.database.Run(R"(
    CREATE SEQUENCE rm.tries;
    CREATE SEQUENCE rm.runs;
    CREATE FUNCTION rm.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF nextval('rm.tries') = 1 THEN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END IF;
      RETURN NEW; END $$;
    CREATE TRIGGER no BEFORE INSERT ON feed_state.dead_letters FOR EACH ROW EXECUTE FUNCTION
      rm.no();)");
  const auto group = world.NewGroup();
  for (const int64_t version : {1, 3, 2}) {
    world.Publish({{.version = version,
                    .payload = version == 3 ? MergeRunning(never) : Merge("a", "x"),
                    .ordered = false}});
    ASSERT_TRUE(world.AwaitDrained());
  }
  EXPECT_TRUE(world.Await([&] { return world.DeadLetters() == 1; })) << group->status().reason;
  // Twice with its predecessor, twice alone: a group that halts and comes back tries it again.
  EXPECT_EQ(world.Count("SELECT last_value FROM rm.runs"), 4);
}

// Two may release the same key: the one that failed may be gone when its end is written.
TEST(Blame, MarksAParkedEventDeadAndNotWhicheverIsFirst) {
  GroupWorld world(/*ordered=*/false);
  {
    const auto group = world.NewGroup();
    for (const int64_t version : {1, 3, 4}) {
      world.Publish({{.version = version, .payload = Merge("a", "x"), .ordered = false}});
      ASSERT_TRUE(world.AwaitDrained());
    }
  }
  world.database.Run("UPDATE feed_state.key_state SET settled_version = 2");
  const DirectBatch direct(world);
  const EventId fourth(world.Value("SELECT event_id FROM feed_state.parked WHERE version = 4"));
  const ReleaseLimits one_of_two{.max_events = 1,
                                 .marked_dead = {{fourth, {"EVENT.REFUSED_BY_DATABASE", "no"}, 5}}};
  Loaded loaded;
  ASSERT_TRUE(direct.Release({"item/k1"}, one_of_two, &loaded).ok());
  EXPECT_EQ(loaded.events, 1);
  EXPECT_EQ(world.Count("SELECT version FROM rm.items"), 3);
  EXPECT_EQ(world.DeadLetters(), 0);
  ASSERT_TRUE(direct.Release({"item/k1"}, one_of_two, &loaded).ok());
  EXPECT_EQ(loaded.first, fourth);
  EXPECT_EQ(world.Count("SELECT version FROM feed_state.dead_letters WHERE attempts = 5"), 4);
}

// Given back at once it would come again at once, and so on for as long as the database is down.
TEST(Blame, KeepsAHeartbeatInHandWhileTheDatabaseIsDown) {
  GroupWorld world;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  const std::string name = world.database.name();
  auto server = *postgres::Connection::Open({.url = testing::TestCluster()});
  ASSERT_TRUE(server->Run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false").ok());
  ASSERT_TRUE(server
                  ->Execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname "
                            "= '" +
                            name + "'")
                  .ok());
  pubsub::Message heartbeat;
  heartbeat.attributes["lockstep_heartbeat"] = "{}";
  world.PublishMessage(heartbeat);
  ASSERT_TRUE(world.Await([&] { return !group->status().database_error.empty(); }));
  const auto heard = Clock::System().Now();
  ASSERT_TRUE(world.Await([&] { return group->status().last_turn > heard + Millis(200); }));
  EXPECT_EQ(world.bus.released().size(), 0u);
  ASSERT_TRUE(server->Run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true").ok());
  EXPECT_TRUE(world.AwaitDrained());
}

// A projection in C++ may say anything.
TEST(Blame, KeepsAReasonThatPostgresCouldNotStore) {
  GroupWorld world;
  world.Publish({{.payload = R"({"refuse":"before\u0000after"})"}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_THAT(world.Value("SELECT reason FROM feed_state.dead_letters"), HasSubstr("before?after"));
  EXPECT_TRUE(group->status().ready()) << group->status().reason;
}

}  // namespace
}  // namespace lockstep::runner
