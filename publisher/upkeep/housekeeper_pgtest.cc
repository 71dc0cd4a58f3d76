#include <gmock/gmock.h>

#include "publisher/testing/outbox_test.h"
#include "publisher/upkeep/housekeeper.h"
#include "tests/support/eventually.h"
#include "tests/support/service_stress.h"

namespace lockstep::publisher {
namespace {

constexpr char kOld[] = "published_at < now() - interval '7 days'";

class HousekeeperTest : public OutboxTest {
 protected:
  // `count` published rows, the first `old` of them eight days ago.
  void Publish(int count, int old) {
    EnqueueMany("k", count);
    db_.Query(
        "UPDATE shop.outbox_status SET published_at = now() - CASE WHEN version <= $1::int THEN "
        "interval "
        "'8 days' ELSE interval '6 days' END",
        postgres::Params(old));
  }

  // Into shop.deletes, how many rows each DELETE takes.
  void NoteDeletes() {
    db_.Run(
        "CREATE TABLE shop.deletes (rows int); CREATE FUNCTION shop.note() RETURNS trigger "
        "LANGUAGE plpgsql AS $$ BEGIN INSERT INTO shop.deletes SELECT count(*) FROM gone; RETURN "
        "NULL; END $$; "
        "CREATE TRIGGER note AFTER DELETE ON shop.outbox REFERENCING OLD TABLE AS gone FOR EACH "
        "STATEMENT EXECUTE FUNCTION shop.note()");
  }

  bool AwaitEmpty() {
    return testing::Eventually([&] { return Count("true") == 0; });
  }

  std::unique_ptr<Housekeeper> Make(const CleanerOptions& options,
                                    std::vector<Housekeeper::Task> tasks = {{kTable, true, true}}) {
    return std::make_unique<Housekeeper>(options, db_.url(), std::move(tasks));
  }
};

TEST_F(HousekeeperTest, DeletesAllThatIsOldInBoundedBatches) {
  Publish(10, 7);
  NoteDeletes();
  CleanerOptions options;
  options.batch_size = 3;
  ASSERT_TRUE(Make(options)->Round().ok());
  EXPECT_EQ(Count("true"), 3);
  EXPECT_EQ(Count(kOld), 0);
  EXPECT_EQ(db_.QueryInt("SELECT max(rows) FROM shop.deletes"), 3);
  EXPECT_EQ(db_.QueryInt("SELECT sum(rows) FROM shop.deletes"), 7);
}

// The database's clock has gone back by an hour, whatever made it do so.
TEST_F(HousekeeperTest, RowsFromTheFutureAreDueAndHonestWaitsAreKept) {
  for (const char* key : {"new", "pushed", "tried", "renewed since", "held", "honest"})
    Enqueue(key, 1);
  db_.Run(
      "UPDATE shop.outbox SET created_at = now() + interval '1 hour' WHERE aggregate_id = 'new';"
      "UPDATE shop.outbox_status SET available_at = now() + interval '1 hour' WHERE aggregate_id = "
      "'new';"
      "UPDATE shop.outbox_status SET available_at = now() + interval '1 hour' WHERE aggregate_id = "
      "'pushed';"
      "UPDATE shop.outbox_status SET attempts = 1, locked_at = now() + interval '59 minutes', "
      "available_at "
      "= now() + interval '1 hour' WHERE aggregate_id = 'tried';"
      "UPDATE shop.outbox_status SET locked_at = now(), available_at = now() + interval '1 hour' "
      "WHERE "
      "aggregate_id = 'renewed since';"
      "UPDATE shop.outbox_status SET quarantined_at = now(), available_at = 'infinity' WHERE "
      "aggregate_id "
      "= "
      "'held';"
      "UPDATE shop.outbox_status SET attempts = 1, locked_at = now(), available_at = now() + "
      "interval '1 "
      "minute' WHERE aggregate_id = 'honest'");
  ASSERT_TRUE(Make({})->Round().ok());
  EXPECT_EQ(Count("available_at <= now()"), 4);
  EXPECT_EQ(Count("aggregate_id = 'honest' AND available_at > now()"), 1);
  EXPECT_EQ(Count("aggregate_id = 'held' AND available_at = 'infinity'"), 1);
}

TEST_F(HousekeeperTest, RowsFromTheFutureDoNotWaitForTheNextCleaning) {
  // Let go at the end of the first round: what comes afterwards would wait for the second.
  Enqueue("held", 2);
  db_.Run("UPDATE shop.outbox_status SET available_at = 'infinity'");
  CleanerOptions options;
  options.interval = std::chrono::hours(1'000);
  Housekeeper housekeeper(options, db_.url(), {{kTable, true, true}}, /*pull_back=*/Millis(10));
  ASSERT_TRUE(housekeeper.Start().ok());
  ASSERT_TRUE(testing::Eventually([&] { return Count("available_at = 'infinity'") == 0; }));
  db_.Run("DELETE FROM shop.outbox");
  Publish(1, 1);
  for (int time = 0; time < 2; ++time) {
    Enqueue("new" + std::to_string(time), 1);
    db_.Run(
        "UPDATE shop.outbox_status SET available_at = now() + interval '1 hour' WHERE published_at "
        "IS "
        "NULL");
    ASSERT_TRUE(testing::Eventually([&] { return Count("available_at > now()") == 0; }));
  }
  EXPECT_EQ(Count(kOld), 1) << "cleaning keeps its interval";
}

TEST_F(HousekeeperTest, DeadRowsStayUnlessARetentionIsSet) {
  Enqueue("k", 1);
  db_.Run(
      "UPDATE shop.outbox_status SET dead_at = now() - interval '1 year', available_at = "
      "'infinity'");
  CleanerOptions options;
  ASSERT_TRUE(Make(options)->Round().ok());
  EXPECT_EQ(Count("true"), 1);
  options.dead_retention = Millis(3'600'000);
  ASSERT_TRUE(Make(options)->Round().ok());
  EXPECT_EQ(Count("true"), 0);
}

TEST_F(HousekeeperTest, OldAuditsGoInBatchesAndYoungOnesStayWhateverIsAskedFor) {
  db_.Run(
      "INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, at) SELECT "
      "'a', 'x', o, 1, gen_random_uuid(), now() - i * interval '10 days' FROM "
      "unnest(ARRAY['shop.outbox', 'other.outbox']) o, generate_series(0, 60) i");
  const auto left = [&](const std::string& outbox) {
    return db_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit WHERE outbox = '" + outbox +
                        "'");
  };
  CleanerOptions options;
  options.batch_size = 4;
  ASSERT_TRUE(Make(options)->Round().ok());
  EXPECT_EQ(left("shop.outbox"), 40);
  EXPECT_EQ(left("other.outbox"), 61) << "another's";
  options.audit_retention = Millis(1);
  ASSERT_TRUE(Make(options)->Round().ok());
  EXPECT_EQ(left("shop.outbox"), 3) << "30 days at least";
}

TEST_F(HousekeeperTest, WhatIsNotAskedForIsNotDone) {
  Publish(4, 4);
  // Relayed, not cleaned: relay.tables has it, cleaner.tables does not.
  ASSERT_TRUE(Make({}, {{kTable, false, true}})->Round().ok());
  EXPECT_EQ(Count("true"), 4);
  // Cleaned, not relayed.
  ASSERT_TRUE(Make({}, {{kTable, true, false}})->Round().ok());
  EXPECT_EQ(Count("true"), 0);
}

TEST_F(HousekeeperTest, ABadTableDoesNotStopTheOthers) {
  Publish(2, 2);
  const absl::Status done = Make({}, {{"no.such", true, true}, {kTable, true, true}})->Round();
  EXPECT_FALSE(done.ok());
  EXPECT_EQ(Count("true"), 0);
}

TEST_F(HousekeeperTest, LetsGoOfRowsBehindABlockerThatIsGone) {
  EnqueueMany("k", 2);
  db_.Run("UPDATE shop.outbox_status SET available_at = 'infinity' WHERE version = 2");
  ASSERT_TRUE(Make({})->Round().ok());
  EXPECT_EQ(Count("available_at = 'infinity'"), 1) << "version 1 still waits";
  db_.Run("DELETE FROM shop.outbox WHERE version = 1");
  ASSERT_TRUE(Make({})->Round().ok());
  EXPECT_EQ(Count("available_at = 'infinity'"), 0);
}

TEST_F(HousekeeperTest, NewSettingsAreFollowedAtOnce) {
  // Let go in the first round, after the cleaning: what is set afterwards is for a round of its
  // own.
  Enqueue("held", 2);
  db_.Run("UPDATE shop.outbox_status SET available_at = 'infinity'");
  CleanerOptions options;
  options.interval = options.retention = std::chrono::hours(1'000);
  const auto housekeeper = Make(options);
  ASSERT_TRUE(housekeeper->Start().ok());
  ASSERT_TRUE(testing::Eventually([&] { return Count("available_at = 'infinity'") == 0; }));
  db_.Run("DELETE FROM shop.outbox");
  NoteDeletes();
  Publish(5, 5);
  options.retention = Millis(0);
  options.batch_size = 2;
  housekeeper->Reconfigure(options);
  ASSERT_TRUE(AwaitEmpty());
  EXPECT_EQ(db_.QueryInt("SELECT max(rows) FROM shop.deletes"), 2);

  Enqueue("dead", 1);
  db_.Run(
      "UPDATE shop.outbox_status SET dead_at = now() - interval '1 year', available_at = "
      "'infinity'");
  options.dead_retention = Millis(1);
  housekeeper->Reconfigure(options);
  ASSERT_TRUE(AwaitEmpty());

  options.interval = Millis(10);
  housekeeper->Reconfigure(options);
  // The round at once may clean the first of these, not both.
  for (int time = 0; time < 2; ++time) {
    Publish(5, 5);
    ASSERT_TRUE(AwaitEmpty());
  }
}

TEST_F(HousekeeperTest, IsAServiceLikeAnyOther) {
  testing::StressService([&] { return Make({}); });
}

}  // namespace
}  // namespace lockstep::publisher
