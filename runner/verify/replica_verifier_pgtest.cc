// A runner that compares its read models with their sources all the time, a range at a time.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "postgres/migrator.h"
#include "projections/testing/test_group.h"
#include "runner/verify/range_step.h"
#include "runner/verify/replica_verifier.h"
#include "sql/migrations.h"
#include "tests/support/eventually.h"
#include "tests/support/test_database.h"

namespace lockstep::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFeed[] = R"(group: feed
subscription: items.feed
projections:
  - name: items
    table: rm.items
    key: id
    version: version
    events:
      Saved: {replace: {a: {field: a}}}
)";

constexpr char kItemsOfShop[] = R"(backfill: items
outbox: shop.outbox
topic: shop.events
{source}
key: [id]
aggregate_type: item
aggregate_id: id
version: version
event_type: Saved
payload:
  fields: {{id: id, a: a}}
)";

class ReplicaVerifierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto at_source = source_.Connect();
    ASSERT_TRUE(
        postgres::Migrator(*at_source, "lockstep", sql::OutboxMigrations()).Up().status().ok());
    ASSERT_TRUE(projections::MigrateState(*replica_.Connect()).ok());
    source_.Run(
        "SELECT lockstep.create_outbox('shop.outbox');"
        "CREATE TABLE shop.items (id bigint PRIMARY KEY, version int NOT NULL, a text);"
        "INSERT INTO shop.items SELECT g, 3, 'a' FROM generate_series(1, 1000) g; ANALYZE");
    replica_.Run(
        "CREATE SCHEMA rm; CREATE TABLE rm.items (id bigint PRIMARY KEY, version bigint, a text);"
        "INSERT INTO rm.items SELECT g, 3, 'a' FROM generate_series(1, 1000) g; ANALYZE");
    // A runner that works and has nothing in hand, for an hour.
    replica_.Run(
        "INSERT INTO lockstep_state.consumer_groups (group_name) VALUES ('feed');"
        "INSERT INTO lockstep_state.instances (group_name, instance, epoch, lanes, seen_at, state,"
        " lag_ms) VALUES ('feed', 'one', 1, 1, now() + interval '1 hour', 'running', 0)");
    schedule_ = {.every = Millis(86'400'000),
                 .backfills = {"items.yaml"},
                 .source = source_.url(),
                 .grace = Millis(0),
                 .rows = 100};
    options_ = {.database = replica_.url(),
                .state_schema = "lockstep_state",
                .instance = "one",
                .ctl = "lockstepctl"};
  }

  std::unique_ptr<ReplicaVerifier> New(const std::string& instance = "one",
                                       const std::string& source = "table: shop.items") {
    const projections::TempFile file("items.yaml",
                                     fmt::format(kItemsOfShop, fmt::arg("source", source)));
    auto group = projections::LoadText(kFeed);
    EXPECT_TRUE(group.ok()) << group.status();
    group_ = *std::move(group);
    auto targets = LoadVerifyTargets({file.path()}, group_.projector->plan());
    EXPECT_TRUE(targets.ok()) << targets.status();
    options_.instance = instance;
    return std::make_unique<ReplicaVerifier>(
        options_,
        std::vector<VerifiedGroup>{{.name = "feed",
                                    .schedule = schedule_,
                                    .targets = *std::move(targets),
                                    .projector = group_.projector.get()}},
        metrics_);
  }
  bool Turn(ReplicaVerifier& verifier) {
    const auto turn = verifier.Turn("feed");
    EXPECT_TRUE(turn.ok()) << turn.status();
    return turn.value_or(false);
  }
  // Its pause is over.
  void Due() {
    replica_.Run("UPDATE lockstep_state.verifications SET due_at = now() - interval '1 s'");
  }
  // Ranges until a pass has ended; so many.
  int Pass(ReplicaVerifier& verifier) {
    const int64_t before = Passes();
    for (int ranges = 1; ranges <= 50; ++ranges) {
      if (ranges > 1) Due();
      EXPECT_TRUE(Turn(verifier));
      if (Passes() > before) return ranges;
    }
    ADD_FAILURE() << "no end: " << Text("error");
    return 0;
  }
  int64_t Passes() {
    return replica_.QueryInt(
        "SELECT coalesce((extract(epoch FROM max(passed_at)) * 1000000)::bigint, 0) FROM "
        "lockstep_state.verifications");
  }
  std::string Text(const std::string& column) {
    return replica_.Query("SELECT " + column + "::text AS x FROM lockstep_state.verifications")[0]
        .String("x");
  }
  // "class key" of what is kept.
  std::vector<std::string> Kept() {
    std::vector<std::string> kept;
    for (const postgres::Row row : replica_.Query(
             "SELECT class || ' ' || (key ->> 0) AS x FROM lockstep_state.verify_differences "
             "ORDER BY (key ->> 0)::bigint")) {
      kept.push_back(row.String("x"));
    }
    return kept;
  }
  double Failures() {
    return CounterOf(metrics_, "replica_verify_failures_total",
                     "Tries to compare a range that came to nothing", {{"group", "feed"}})
        .Value();
  }

  testing::TestDatabase source_, replica_;
  projections::GroupDeclaration group_;
  MetricsRegistry metrics_;
  VerifySchedule schedule_;
  ReplicaVerifier::Options options_;
};

TEST_F(ReplicaVerifierTest, APassIsDoneInRangesAndWhoComesNextGoesOnFromTheCursor) {
  auto one = New();
  for (int range = 0; range < 3; ++range) {
    if (range > 0) Due();
    ASSERT_TRUE(Turn(*one));
  }
  EXPECT_EQ(Text("cursor"), "[\"301\"]");
  EXPECT_EQ(Text("pass_rows"), "300");
  EXPECT_FALSE(Turn(*one));  // it rests
  one.reset();

  auto two = New("two");
  Due();
  EXPECT_EQ(Pass(*two), 7);
  EXPECT_EQ(Text("rows"), "1000");
  EXPECT_EQ(Text("pass_rows"), "0");
  EXPECT_THAT(Kept(), IsEmpty());
  // The next pass begins a day after this one has begun.
  EXPECT_FALSE(Turn(*two));
  EXPECT_EQ(replica_.QueryInt("SELECT count(*) FROM lockstep_state.verifications WHERE due_at > "
                              "now() + interval '23 hours' AND began_at IS NULL"),
            1);
}

TEST_F(ReplicaVerifierTest, WhatDiffersIsKeptByClassUntilItIsEqual) {
  options_.again = Millis(0);
  schedule_.deep = true;
  replica_.Run(
      "DELETE FROM rm.items WHERE id IN (1, 500); UPDATE rm.items SET version = 2 WHERE id = 77;"
      "UPDATE rm.items SET version = 9 WHERE id = 400; INSERT INTO rm.items VALUES (2000, 5, 'a');"
      "UPDATE rm.items SET a = 'spoilt' WHERE id = 900");
  const auto verifier = New();
  Pass(*verifier);
  EXPECT_THAT(Kept(), ElementsAre("missing 1", "behind 77", "ahead 400", "missing 500",
                                  "content 900", "ghost 2000"));
  const auto listed = state::Verifications(state::Schema("lockstep_state"), ConsumerGroup("feed"))
                          .List(*replica_.Connect());
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ((*listed)[0].Int("missing"), 2);
  EXPECT_EQ((*listed)[0].Int("ghost"), 1);
  EXPECT_EQ((*listed)[0].Int("content"), 1);

  // Not due for a day; what was found is looked at all the same.
  replica_.Run(
      "INSERT INTO rm.items VALUES (1, 3, 'a'); UPDATE rm.items SET a = 'a' WHERE id = 900;"
      "DELETE FROM rm.items WHERE id = 2000; UPDATE rm.items SET version = 4 WHERE id = 77");
  ASSERT_TRUE(Turn(*verifier));
  EXPECT_THAT(Kept(), ElementsAre("ahead 77", "ahead 400", "missing 500"));
  EXPECT_EQ(Text("cursor"), "");
}

TEST_F(ReplicaVerifierTest, AReplicaOrASourceThatLostEverythingIsReadInRangesToo) {
  source_.Run("TRUNCATE shop.items");
  auto verifier = New();
  EXPECT_EQ(Pass(*verifier), 10);
  EXPECT_EQ(replica_.QueryInt("SELECT count(*) FROM lockstep_state.verify_differences WHERE class "
                              "= 'ghost'"),
            1000);
}

TEST_F(ReplicaVerifierTest, OnlyOneDoesARangeAndALeaseThatIsOverIsTakenOver) {
  const auto one = New();
  ASSERT_TRUE(Turn(*one));
  const auto connection = replica_.Connect();
  const state::Verifications store(state::Schema("lockstep_state"), ConsumerGroup("feed"));
  const std::vector<std::pair<std::string, std::string>> wanted = {{"items", "items"}};
  Due();
  const auto lost =
      store.Claim(*connection, wanted, "frozen", {schedule_.every, Millis(60'000), Millis(60'000)});
  ASSERT_TRUE(lost.ok() && *lost) << lost.status();
  EXPECT_FALSE(Turn(*one));
  replica_.Run("UPDATE lockstep_state.verifications SET lease_until = now() - interval '1 s'");
  ASSERT_TRUE(Turn(*one));
  EXPECT_EQ(Text("cursor"), "[\"201\"]");
  // The one that was frozen comes back and has nothing to say.
  EXPECT_FALSE(*store.Renew(*connection, **lost, Millis(60'000)));
  EXPECT_FALSE(*store.Advance(
      *connection, **lost,
      {.next = std::vector<std::string>{"101"}, .rows = 100, .differences = {{{"7"}, "missing"}}}));
  EXPECT_FALSE(*store.Looked(*connection, **lost, {}, {}));
  EXPECT_FALSE(*store.Fail(*connection, **lost, "late", Millis(0)));
  EXPECT_EQ(Text("cursor"), "[\"201\"]");
  EXPECT_EQ(Text("pass_rows"), "200");
  EXPECT_EQ(Text("error"), "");
  EXPECT_THAT(Kept(), IsEmpty());
}

TEST_F(ReplicaVerifierTest, ASourceOutOfReachIsCountedAndTriedAgain) {
  const std::string there = schedule_.source;
  schedule_.source = "postgresql://nobody@127.0.0.1:1/none";
  auto verifier = New();
  ASSERT_TRUE(Turn(*verifier));
  EXPECT_EQ(Failures(), 1);
  EXPECT_THAT(Text("error"), HasSubstr("the source's database can't be reached"));
  EXPECT_FALSE(Turn(*verifier));  // not at once
  schedule_.source = there;
  verifier = New();
  Due();
  EXPECT_EQ(Pass(*verifier), 10);
  EXPECT_EQ(Text("error"), "");
  EXPECT_EQ(Text("failures"), "0");
}

TEST_F(ReplicaVerifierTest, WhileTheGroupDoesNotWorkNothingIsCalledDifferent) {
  replica_.Run("DELETE FROM rm.items WHERE id = 7; DELETE FROM lockstep_state.instances");
  options_.passage_timeout = Millis(100);
  const auto verifier = New();
  ASSERT_TRUE(Turn(*verifier));
  EXPECT_THAT(Kept(), IsEmpty());
  EXPECT_THAT(Text("error"), HasSubstr("no runner of group feed is working"));
  EXPECT_EQ(Text("cursor"), "");  // the range is done again
  EXPECT_EQ(Failures(), 1);
}

TEST_F(ReplicaVerifierTest, TheSourceIsNeverWritten) {
  source_.Run(
      "CREATE FUNCTION shop.touch() RETURNS bool VOLATILE LANGUAGE sql AS 'INSERT INTO shop.items "
      "VALUES (0, 1) RETURNING true'");
  const auto verifier = New("one", "query: \"SELECT * FROM shop.items WHERE shop.touch()\"");
  ASSERT_TRUE(Turn(*verifier));
  EXPECT_THAT(Text("error"), HasSubstr("read-only transaction"));
}

TEST_F(ReplicaVerifierTest, ARangeThatTakesTooLongIsTriedAgainWithFewerRows) {
  source_.Run(
      "CREATE FUNCTION shop.slow(id bigint) RETURNS bool VOLATILE COST 100000 LANGUAGE plpgsql AS "
      "$$ BEGIN PERFORM pg_sleep(0.002); RETURN true; END $$");
  options_.statement_timeout = Millis(1'000);
  schedule_.rows = 1'000;
  const auto verifier = New("one", "query: \"SELECT * FROM shop.items WHERE shop.slow(id)\"");
  int tries = 0;
  for (; tries < 6 && Text("cursor").empty(); ++tries) {
    Due();
    ASSERT_TRUE(Turn(*verifier));
  }
  EXPECT_GT(tries, 1);
  EXPECT_FALSE(Text("cursor").empty()) << Text("error");
}

TEST_F(ReplicaVerifierTest, AStopCancelsTheStatementAndGivesTheLeaseBack) {
  options_.look = Millis(100);
  const auto verifier =
      New("one", "query: \"SELECT * FROM shop.items WHERE pg_sleep(20)::text = ''\"");
  ASSERT_TRUE(verifier->Start().ok());
  ASSERT_TRUE(testing::Eventually([&] {
    return source_.QueryInt(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = "
               "current_database() AND wait_event = 'PgSleep'") > 0;
  }));
  verifier->Stop();
  EXPECT_EQ(Text("lease_token"), "");
  EXPECT_EQ(Text("failures"), "0");
  EXPECT_EQ(Failures(), 0);
}

TEST_F(ReplicaVerifierTest, AnotherIntervalIsFollowedAndZeroIsNone) {
  const auto verifier = New();
  Pass(*verifier);
  EXPECT_FALSE(Turn(*verifier));
  verifier->Follow("feed", Millis(1));
  EXPECT_TRUE(Turn(*verifier));
  verifier->Follow("feed", Millis(0));
  Due();
  EXPECT_FALSE(Turn(*verifier));
}

TEST(PauseAfterRange, SpreadsAPassOverFourFifthsOfItsTime) {
  const Millis hour(3'600'000), day = 24 * hour;
  // 100 ranges in 19.2 hours.
  EXPECT_EQ(PauseAfterRange(day, Millis(0), Millis(50), 10'000, 1'000'000), day * 4 / 5 / 100);
  // Half of the time for the last tenth of the rows: it takes its time.
  EXPECT_EQ(PauseAfterRange(day, day * 2 / 5, Millis(50), 10'000, 100'000), day * 2 / 5 / 10);
  // Late: no faster than as much rest as work.
  EXPECT_EQ(PauseAfterRange(day, 2 * day, Millis(700), 10'000, 900'000), Millis(700));
  EXPECT_EQ(PauseAfterRange(Millis(1'000), Millis(0), Millis(700), 10'000, 900'000'000),
            Millis(700));
}

}  // namespace
}  // namespace lockstep::runner
