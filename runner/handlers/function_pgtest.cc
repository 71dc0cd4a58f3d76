// Functions as handlers of a running group: exactly once, refusals, code of the service.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "platform/status.h"
#include "postgres/migrator.h"
#include "runner/testing/handler_world.h"
#include "sql/migrations.h"

namespace lockstep::runner {
namespace {

using ::testing::HasSubstr;

constexpr char kHandler[] = "  - {name: log, call: rm.on_made, events: [Made]}\n";
constexpr char kLog[] = R"(
CREATE FUNCTION rm.on_made(events feed_state.event[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO rm.log (id, version, line)
  SELECT e.aggregate_id, e.version, concat_ws(' ', e.kind, e.replay)
    FROM unnest(events) WITH ORDINALITY AS e ORDER BY e.ordinality $$)";
// How often a version was logged that is not the next one of its aggregate.
constexpr char kOutOfTurn[] =
    "SELECT count(*) FROM (SELECT version - lag(version, 1, 0::bigint) OVER (PARTITION BY id ORDER "
    "BY seq) AS step FROM rm.log) l WHERE step <> 1";

TEST(FunctionHandler, SeesEachEventOnceInOrder) {
  HandlerWorld world(kHandler);
  world.database.Run(kLog);
  const auto group = world.NewGroup();
  for (int i = 0; i < 5; ++i) world.Make(fmt::format("k{}", i), 1, 40);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.log"), 200);
  EXPECT_EQ(world.Count(kOutOfTurn), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing WHERE version = 40"), 5);
}

TEST(FunctionHandler, WaitsForAVersionThatIsMissing) {
  HandlerWorld world(kHandler, nullptr, /*table=*/false);
  world.database.Run(kLog);
  const auto group = world.NewGroup();
  world.Make("k", 1, 1);
  world.Make("k", 3, 3);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.log"), 1);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 1);
  world.Make("k", 2, 2);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT string_agg(version::text, '' ORDER BY seq) FROM rm.log"), "123");
}

TEST(FunctionHandler, RefusesOneEventAndTheOthersGoOn) {
  HandlerWorld world(kHandler);
  world.database.Run(R"(
CREATE TABLE rm.calls (n int);
CREATE FUNCTION rm.on_made(events feed_state.event[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  bad uuid := (SELECT e.event_id FROM unnest(events) e WHERE e.aggregate_id = 'bad' LIMIT 1);
BEGIN
  IF bad IS NOT NULL THEN PERFORM feed_state.refuse(bad, 'not this one'); END IF;
  INSERT INTO rm.log (id, version) SELECT e.aggregate_id, e.version FROM unnest(events) e;
END $$)");
  world.options.lanes = 1;
  for (int i = 0; i < 20; ++i) world.Make(fmt::format("k{}", i), 1, 1);
  world.Make("bad", 1, 2);
  for (int i = 20; i < 40; ++i) world.Make(fmt::format("k{}", i), 1, 1);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT code || ' ' || reason || ' ' || version FROM "
                        "feed_state.dead_letters"),
            "HANDLER.REFUSED not this one 1");
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.log"), 40);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.thing"), 40);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.parked"), 1);
  EXPECT_EQ(group->status().counts.failures, 0) << "no bisecting: it was named";
}

TEST(FunctionHandler, WhoRefusesAStrangerIsBlamedLikeAnyOther) {
  HandlerWorld world(kHandler);
  world.options.max_attempts = 1;
  world.database.Run(R"(
CREATE FUNCTION rm.on_made(events feed_state.event[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM unnest(events) e WHERE e.aggregate_id = 'bad') THEN
    PERFORM feed_state.refuse('00000000-0000-4000-8000-00000000dead', 'somebody else');
  END IF;
END $$)");
  world.Make("good", 1, 3);
  world.Make("bad", 1, 1);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT code || ordering_key FROM feed_state.dead_letters"),
            "EVENT.REFUSED_BY_DATABASEbad");
  EXPECT_EQ(world.Count("SELECT version FROM rm.thing"), 3);
}

TEST(FunctionHandler, ThatIsNotThereHaltsTheGroupUntilItIs) {
  HandlerWorld world(kHandler);
  const auto group = world.NewGroup();
  world.Make("k", 1, 1);
  ASSERT_TRUE(world.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_THAT(group->status().reason, HasSubstr("function rm.on_made does not exist"));
  world.database.Run(kLog);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.log"), 1);
}

// Sessions end at any moment, and acks are lost: what comes again makes nothing twice.
TEST(FunctionHandler, MakesEventsOfEventsExactlyOnce) {
  HandlerWorld world(kHandler);
  {
    const auto connection = world.database.Connect();
    ASSERT_TRUE(postgres::Migrator(*connection, "lockstep", sql::OutboxMigrations()).Up().ok());
  }
  world.database.Run("SELECT lockstep.create_outbox('rm.outbox')");
  world.database.Run(R"(
CREATE FUNCTION rm.on_made(events feed_state.event[]) RETURNS void LANGUAGE sql AS $$
  SELECT lockstep.enqueue('rm.outbox', 'feed.item.seen.v1', 'item', e.aggregate_id, 'Seen',
                          e.version, '{}'::bytea, content_type => 'application/json')
    FROM unnest(events) WITH ORDINALITY AS e ORDER BY e.ordinality $$)");
  std::atomic<int> acks = 0;
  world.bus.OnAck([&](const auto&) {
    return ++acks % 3 == 0 ? absl::UnavailableError("lost") : absl::OkStatus();
  });
  const auto group = world.NewGroup();
  std::atomic<bool> stop = false;
  std::thread killer([&] {
    const auto connection = world.database.Connect();
    while (!stop) {
      connection
          ->Run(
              "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE "
              "'lockstep-runner feed%' AND datname = current_database()")
          .IgnoreError();
      std::this_thread::sleep_for(Millis(60));
    }
  });
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 4; ++i) world.Make(fmt::format("k{}", i), 1 + 5 * round, 5 + 5 * round);
    std::this_thread::sleep_for(Millis(20));
  }
  stop = true;
  killer.join();
  world.bus.OnAck(nullptr);
  world.bus.LoseLeases(kSubscription);
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.outbox"), 600);
  EXPECT_EQ(world.Count("SELECT count(*) FROM (SELECT version - lag(version, 1, 0::bigint) OVER "
                        "(PARTITION BY aggregate_id ORDER BY sequence) AS step FROM rm.outbox) o "
                        "WHERE step <> 1"),
            0);
  EXPECT_EQ(world.DeadLetters(), 0);
}

// A handler in C++: the batch, the transaction, and a refusal by name.
class Picky : public projections::Projection {
 public:
  std::string Name() const override { return "picky"; }
  bool Wants(const projections::Event& event) const override { return event.event_type == "Made"; }
  bool Writes() const override { return true; }
  bool MindsReplays() const override { return true; }
  absl::Status Write(postgres::Transaction& transaction,
                     std::span<const projections::Event* const> events,
                     const std::string&) const override {
    for (const projections::Event* event : events) {
      if (event->aggregate.id == "bad") {
        return projections::RefuseEvent(event->event_id, "picky says no");
      }
    }
    for (const projections::Event* event : events) {
      RETURN_IF_ERROR(transaction.Run("INSERT INTO rm.log (id, version, line) VALUES ($1, $2, $3)",
                                      event->aggregate.id, event->version,
                                      event->replay ? "again" : "first"));
    }
    return absl::OkStatus();
  }
};

TEST(CodeHandler, MayRefuseOneEventByName) {
  HandlerWorld world(kHandler);
  world.database.Run(kLog);
  world.code["feed"].push_back(std::make_shared<Picky>());
  world.options.lanes = 1;
  world.Make("good", 1, 2);
  world.Make("bad", 1, 1);
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.Value("SELECT code || ' ' || reason FROM feed_state.dead_letters"),
            "HANDLER.REFUSED picky says no");
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.log WHERE line = 'first'"), 2);
  EXPECT_EQ(group->status().counts.failures, 0);
}

}  // namespace
}  // namespace lockstep::runner
