#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "publisher/testing/backfill_worker_test.h"
#include "tests/support/eventually.h"

// What stops a backfill, slows it, or holds it up: the source, its operator, its throttle.
namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;

TEST_F(BackfillWorkerTest, ARowThatCantBeSentStopsItThereAndItGoesOnAfterwards) {
  Fill(500);
  db_.Run("UPDATE shop.items SET version = NULL WHERE id = 321");
  const std::string id = Start(Items());
  const auto a = Make(bus_);
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "failed");
  EXPECT_THAT(Of(id).last_error, HasSubstr("row (321) of shop.items has NULL"));
  EXPECT_EQ(Of(id).cursor, KeyTexts{"320"});
  EXPECT_EQ(Sent(bus_), Rows(320));
  EXPECT_FALSE(a->worker->Turn().value());
  db_.Run("UPDATE shop.items SET version = 1 WHERE id = 321");
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kResume, id, "ann", "").ok());
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(bus_.published().size(), 500U);
  EXPECT_EQ(Of(id).state, "done");
}

TEST_F(BackfillWorkerTest, EachFaultOfTheSourceIsASentenceAndCanBeResumed) {
  Fill(300);
  Declaration items = Items();
  items.chunk = Millis(10'000);  // a busy machine may read for long at a row of 11 MB
  const auto a = Make(bus_);
  const auto fails = [&](const std::string& breaks, const std::string& mends,
                         const std::string& words) {
    const std::string id = Start(items);
    db_.Run(breaks);
    EXPECT_TRUE(a->worker->Turn().value());
    EXPECT_EQ(Of(id).state, "failed") << breaks;
    EXPECT_THAT(Of(id).last_error, HasSubstr(words));
    db_.Run(mends);
    EXPECT_TRUE(store_.Apply(BackfillStore::Change::kResume, id, "ann", "").ok());
    EXPECT_TRUE(a->worker->Turn().value());
    EXPECT_EQ(Of(id).state, "done") << Of(id).last_error;
  };
  fails("ALTER TABLE shop.items RENAME TO away", "ALTER TABLE shop.away RENAME TO items",
        "shop.items can't be read");
  fails("ALTER TABLE shop.items RENAME version TO v", "ALTER TABLE shop.items RENAME v TO version",
        "does not exist");
  fails(
      "ALTER TABLE shop.items DROP CONSTRAINT items_pkey; ALTER TABLE shop.items ALTER id DROP NOT "
      "NULL; INSERT INTO "
      "shop.items VALUES (NULL, 'x', NULL, 1)",
      "DELETE FROM shop.items WHERE id IS NULL", "NULL in the key (id)");
  fails("INSERT INTO shop.items VALUES (7, 'twin', NULL, 1)",
        "DELETE FROM shop.items WHERE name = 'twin'", "is not unique");
  fails("UPDATE shop.items SET name = repeat('x', 11000000) WHERE id = 200",
        "UPDATE shop.items SET name = 'short' WHERE id = 200", "row (200) of shop.items can't be");
  Declaration elsewhere = Items();
  elsewhere.topic = "other.events";
  const std::string id = Start(elsewhere);
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_THAT(Of(id).last_error, HasSubstr("not in the publisher's table `topics`"));
}

TEST_F(BackfillWorkerTest, TwoRowsOfOneAggregateStopItBeforeAnythingIsSent) {
  Fill(10);
  Declaration names = Items();
  names.aggregate_id = "name";
  db_.Run("UPDATE shop.items SET name = 'item 3' WHERE id = 9");
  const std::string id = Start(names);
  const auto a = Make(bus_);
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "failed");
  EXPECT_THAT(Of(id).last_error, HasSubstr("of the aggregate item/item 3"));
  EXPECT_TRUE(bus_.published().empty());
  db_.Run("UPDATE shop.items SET name = 'item 9' WHERE id = 9");
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kResume, id, "ann", "").ok());
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(bus_.published().size(), 10U);
}

// Before the first page all rows are looked at, which may take longer than any lease.
class BackfillBeginTest : public BackfillWorkerTest {
 protected:
  // The first row passes the gate: of it the types of the columns are asked.
  BackfillBeginTest() {
    Fill(300);
    db_.Run(
        "CREATE FUNCTION shop.gate(id bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN "
        "IF id > 100 THEN PERFORM pg_advisory_xact_lock_shared(19); END IF; RETURN id; END $$");
    Declaration gated = Items();
    gated.table = "";
    gated.query = "SELECT shop.gate(id) AS id, name, version FROM shop.items";
    id_ = Start(gated);
    db_.Run("SELECT pg_advisory_lock(19)");
    working_ = std::thread([this] {
      EXPECT_TRUE(worker_->worker->Turn().value());
      over_ = true;
    });
    EXPECT_TRUE(testing::Eventually([this] { return AtTheGate() > 0; }));
  }
  ~BackfillBeginTest() override {
    db_.Run("SELECT pg_advisory_unlock_all()");
    if (working_.joinable()) working_.join();
  }
  int64_t AtTheGate(const std::string& count = "*") {
    return db_.QueryInt("SELECT count(" + count +
                        ") FROM pg_stat_activity WHERE datname = current_database() AND "
                        "wait_event = 'advisory'");
  }
  std::string LeaseUntil() {
    return std::string(db_.Query("SELECT lease_until::text FROM lockstep.backfills").Text(0, 0));
  }

  std::string id_;
  const std::unique_ptr<Worker> worker_ = Make(bus_, "a", Millis(600'000), "", Millis(1'500));
  std::atomic<bool> over_ = false;
  std::thread working_;
};

TEST_F(BackfillBeginTest, KeepsItsLeaseHoweverLongItTakes) {
  for (int renewals = 0; renewals < 3; ++renewals) {
    const std::string before = LeaseUntil();
    ASSERT_TRUE(testing::Eventually([&] { return LeaseUntil() != before; }));
  }
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.backfills WHERE lease_until > now() + "
                         "interval '1500 ms'"),
            0)
      << "if it dies, another need not wait longer than a lease";
  db_.Run("SELECT pg_advisory_unlock(19)");
  working_.join();
  EXPECT_EQ(Of(id_).state, "done") << Of(id_).last_error;
  EXPECT_EQ(Sent(bus_), Rows(300));
}

TEST_F(BackfillBeginTest, EndsWhenItIsPaused) {
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kPause, id_, "ann", "").ok());
  EXPECT_TRUE(testing::Eventually([&] { return over_.load(); }));
  EXPECT_EQ(Of(id_).state, "paused");
}

TEST_F(BackfillBeginTest, AScanThatIsCancelledIsAFaultOfTheSource) {
  ASSERT_EQ(AtTheGate("pg_cancel_backend(pid)"), 1);
  ASSERT_TRUE(testing::Eventually([&] { return over_.load(); }));
  EXPECT_EQ(Of(id_).state, "failed");
  EXPECT_THAT(Of(id_).last_error, HasSubstr("before the first page of the query"));
}

// Many halvings may take longer than the lease: each is a sign of life, and hears the operator.
TEST_F(BackfillBeginTest, APageThatIsHalvedAfterAPauseIsNotReadAgain) {
  db_.Run("SELECT pg_advisory_unlock(19)");
  working_.join();
  const auto a = Make(bus_, "b", Millis(0));
  Declaration again = Items();
  again.name = "again";
  again.table = "";
  again.query = "SELECT shop.gate(id) AS id, name, version FROM shop.items";
  const std::string id = Start(again);
  ASSERT_TRUE(a->worker->Turn().value());  // begins, and sends a page
  ASSERT_EQ(Of(id).rows_done, 100);
  db_.Run("SELECT pg_advisory_lock(19)");
  over_ = false;
  working_ = std::thread([&] {
    EXPECT_TRUE(a->worker->Turn().value());
    over_ = true;
  });
  ASSERT_TRUE(testing::Eventually([&] { return AtTheGate() > 0; }));
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kPause, id, "ann", "").ok());
  ASSERT_EQ(AtTheGate("pg_cancel_backend(pid)"), 1);
  ASSERT_TRUE(testing::Eventually([&] { return AtTheGate() == 0; }));
  EXPECT_TRUE(testing::Eventually([&] { return over_ || AtTheGate() > 0; }));
  EXPECT_TRUE(over_);
  db_.Run("SELECT pg_advisory_unlock(19)");
  working_.join();
  EXPECT_EQ(Of(id).rows_done, 100);
}

// The gate lets the first row pass, of which the types of the columns are asked.
TEST_F(BackfillWorkerTest, ACancelledPageIsHalvedAndOneRowThatIsCancelledStopsIt) {
  Fill(300);
  db_.Run(
      "CREATE FUNCTION shop.gate(id bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN "
      "IF id > 100 THEN PERFORM pg_advisory_xact_lock_shared(19); END IF; RETURN id; END $$");
  Declaration gated = Items();
  gated.table = "";
  gated.query = "SELECT shop.gate(id) AS id, name, version FROM shop.items";
  const std::string id = Start(gated);
  const auto a = Make(bus_, "a", Millis(0));
  EXPECT_TRUE(a->worker->Turn().value());  // begins, and sends a page
  ASSERT_EQ(Of(id).rows_done, 100);
  // One that waits at the gate, and has not been cancelled yet.
  std::string cancelled = "-infinity";
  const auto waiters = [&](const std::string& count) {
    return db_.QueryInt("SELECT count(" + count +
                        ") FROM pg_stat_activity WHERE datname = current_database() AND "
                        "wait_event = 'advisory' AND query_start > '" +
                        cancelled + "'");
  };
  // Cancels one page, or every one until the turn has ended; on a slow machine the page's own time
  // limit may be sooner.
  const auto turn = [&](bool ends) {
    db_.Run("SELECT pg_advisory_lock(19)");
    std::atomic<bool> over = false;
    std::thread working([&] {
      EXPECT_TRUE(a->worker->Turn().value());
      over = true;
    });
    const auto cancel = [&] {
      const bool met = waiters("pg_cancel_backend(pid)") > 0;
      if (met) cancelled = db_.Query("SELECT clock_timestamp()::text").Text(0, 0);
      return ends ? over.load() : met;
    };
    EXPECT_TRUE(testing::Eventually(cancel));
    EXPECT_TRUE(ends || testing::Eventually([&] { return waiters("*") > 0; }));
    db_.Run("SELECT pg_advisory_unlock(19)");
    working.join();
  };
  turn(/*ends=*/false);
  const int64_t sent = Of(id).rows_done;
  EXPECT_THAT(sent, ::testing::AllOf(::testing::Gt(100), ::testing::Le(150)));
  turn(/*ends=*/true);  // 100 rows, 50, 25, 12, 6, 3, 1
  EXPECT_EQ(Of(id).state, "failed");
  EXPECT_THAT(Of(id).last_error, HasSubstr("the reading of one row of the query was cancelled"));
  EXPECT_EQ(Of(id).rows_done, sent);
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kResume, id, "ann", "").ok());
  while (Of(id).state == "running") ASSERT_TRUE(a->worker->Turn().ok());
  EXPECT_EQ(Sent(bus_), Rows(300));
}

TEST_F(BackfillWorkerTest, IsNoFasterThanItsThrottle) {
  Fill(700);
  Declaration slow = Items();
  slow.rows_per_second = 1'000;
  const std::string id = Start(slow);
  const SteadyTime began = Clock::System().Steady();
  EXPECT_TRUE(Make(bus_)->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "done");
  // What the last page owes is nobody's loss: it has 400 rows at most.
  EXPECT_GE(Clock::System().Steady() - began, Millis(300));
}

TEST_F(BackfillWorkerTest, AnOperatorsWordCountsInTheMiddleOfAPage) {
  using Change = BackfillStore::Change;
  Fill(1000);
  for (const Change change : {Change::kPause, Change::kCancel}) {
    testing::FakeBus bus;
    AddTopic(bus);
    const std::string id = Start(Items());
    std::atomic<int> passed = 0;
    bus.OnPublish([&](const std::string&, const pubsub::Message&) {
      if (++passed == 50) bus.HoldPublishes(true);
      return absl::OkStatus();
    });
    const auto a = Make(bus);
    std::thread working([&] { EXPECT_TRUE(a->worker->Turn().value()); });
    EXPECT_TRUE(testing::Eventually([&] { return passed >= 50; }));
    EXPECT_TRUE(testing::Eventually([&] { return store_.Apply(change, id, "ann", "").ok(); }));
    const BackfillRecord stopped = Of(id);
    bus.HoldPublishes(false);
    working.join();
    EXPECT_EQ(Of(id).rows_done, stopped.rows_done);
    EXPECT_EQ(Of(id).cursor, stopped.cursor);
    EXPECT_LT(bus.published().size(), 1000U);
    EXPECT_FALSE(a->worker->Turn().value());
    if (change == Change::kCancel) continue;
    ASSERT_TRUE(store_.Apply(Change::kResume, id, "ann", "").ok());
    EXPECT_TRUE(a->worker->Turn().value());
    EXPECT_EQ(Sent(bus), Rows(1000));
  }
}

TEST_F(BackfillWorkerTest, TheOperatorsPauseIsHeardAndTurnsAreShared) {
  Fill(2000);
  Declaration slow = Items();
  slow.rows_per_second = 100;
  const std::string first = Start(slow);
  Declaration second = Items();
  second.name = "others";
  const std::string other = Start(second);
  const auto a = Make(bus_, "a", Millis(0));
  EXPECT_TRUE(a->worker->Turn().value());  // a page each
  EXPECT_EQ(Of(first).rows_done, 100);
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_GT(Of(other).rows_done, 0);
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kPause, first, "ann", "").ok());
  while (Of(other).state == "running") ASSERT_TRUE(a->worker->Turn().ok());
  EXPECT_EQ(Of(first).rows_done, 100);
  EXPECT_EQ(Of(first).state, "paused");
}

}  // namespace
}  // namespace lockstep::publisher
