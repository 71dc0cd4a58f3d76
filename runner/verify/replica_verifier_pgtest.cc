// A runner that compares its read models with their sources all the time, a range at a time.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/verify/range_step.h"
#include "runner/verify/testing/replica_verifier_test.h"
#include "tests/support/eventually.h"

namespace lockstep::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// Else the old cursor would be read beyond its end, or fail for ever.
TEST_F(ReplicaVerifierTest, WhereTheKeyIsAnotherThePassBeginsAnew) {
  options_.again = Millis(0);
  replica_.Run("DELETE FROM rm.items WHERE id = 7");
  ASSERT_TRUE(Turn(*New()));
  EXPECT_EQ(Text("cursor"), "[\"101\"]");
  EXPECT_THAT(Kept(), ElementsAre("missing 7"));

  source_.Run("ALTER TABLE shop.items ADD tenant text NOT NULL DEFAULT 'acme'");
  replica_.Run(
      "ALTER TABLE rm.items ADD tenant text COLLATE \"C\" NOT NULL DEFAULT 'acme',"
      " DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (tenant, id)");
  const std::string key = "key: id", field = "{{id: id";
  feed_.replace(feed_.find(key), key.size(), "key: {tenant: {field: tenant}, id: {field: id}}");
  declared_.replace(declared_.find(field), field.size(), "{{tenant: tenant, id: id");
  Due();
  ASSERT_TRUE(Turn(*New("two")));
  EXPECT_EQ(Text("error"), "");
  EXPECT_EQ(Text("cursor"), "[\"acme\", \"101\"]");
  EXPECT_EQ(Text("pass_rows"), "100");
  EXPECT_EQ(replica_.QueryInt("SELECT count(*) FROM lockstep_state.verify_differences WHERE key = "
                              "'[\"acme\", \"7\"]' AND class = 'missing'"),
            1);
  EXPECT_EQ(replica_.QueryInt("SELECT count(*) FROM lockstep_state.verify_differences"), 1);

  // Of the same columns, but compared as something else.
  replica_.Run("ALTER TABLE rm.items ALTER id TYPE text");
  Due();
  ASSERT_TRUE(Turn(*New("three")));
  EXPECT_EQ(Text("error"), "");
  EXPECT_EQ(Text("pass_rows"), "100");
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

// Else one that takes long is another's by the time that it is done.
TEST_F(ReplicaVerifierTest, TheLeaseIsRenewedBetweenTheStatementsOfARange) {
  replica_.Run(
      "CREATE TABLE public.renewals (until timestamptz);"
      "CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS "
      "$$ BEGIN INSERT INTO public.renewals VALUES (NEW.lease_until); RETURN NULL; END $$;"
      "CREATE TRIGGER note AFTER UPDATE ON lockstep_state.verifications FOR EACH ROW "
      "WHEN (OLD.lease_token = NEW.lease_token AND OLD.lease_until <> NEW.lease_until) "
      "EXECUTE FUNCTION public.note()");
  options_.lease = Millis(1);  // due for renewal whenever there is an occasion
  ASSERT_TRUE(Turn(*New()));
  EXPECT_EQ(Text("cursor"), "[\"101\"]") << Text("error");  // equal: nobody waits for the group
  EXPECT_GE(replica_.QueryInt("SELECT count(*) FROM public.renewals"), 4);
}

TEST_F(ReplicaVerifierTest, AnUnsortedTablesRangesBecomeSmallerToo) {
  replica_.Run("ALTER TABLE rm.items DROP CONSTRAINT items_pkey; ANALYZE rm.items");
  const auto verifier = New();  // loads the group
  const projections::TempFile file(
      "items.yaml", fmt::format(fmt::runtime(declared_), fmt::arg("source", "table: shop.items")));
  const auto targets = LoadVerifyTargets({file.path()}, group_.projector->plan());
  ASSERT_TRUE(targets.ok()) << targets.status();
  const state::Schema schema("lockstep_state");
  const auto step = RangeStep::Open({.target = targets->front(),
                                     .table = targets->front().tables.front(),
                                     .source = source_.url(),
                                     .replica = replica_.url(),
                                     .schema = schema,
                                     .group = "feed",
                                     .passage = {}});
  ASSERT_TRUE(step.ok()) << step.status();
  const auto rows = [&](int64_t divided) {
    const auto compared = (*step)->Next(std::nullopt, 10, divided);
    return compared.ok() ? compared->result.source_rows : -1;
  };
  EXPECT_EQ(rows(1), 41);  // a twenty-fourth of all
  EXPECT_EQ(rows(4), 10);
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
