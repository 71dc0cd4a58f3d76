#include <gmock/gmock.h>

#include <atomic>
#include <map>
#include <set>

#include "publisher/backfill/snapshot_message.h"
#include "publisher/testing/backfill_worker_test.h"
#include "tests/support/eventually.h"
#include "tests/support/service_stress.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;

TEST_F(BackfillWorkerTest, SendsEveryRowOnceAndEnds) {
  Fill(1234);
  const std::string id = Start(Items());
  const auto a = Make(bus_);
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "done");
  EXPECT_EQ(Of(id).rows_done, 1234);
  EXPECT_EQ(bus_.published().size(), 1234U);
  EXPECT_EQ(Sent(bus_), Rows(1234));
  ASSERT_FALSE(Of(id).last_events.empty());
  EXPECT_EQ(Of(id).last_events.back(), SnapshotEventId(id, "item/1234", 1));
  EXPECT_FALSE(a->worker->Turn().value());
  EXPECT_THAT(RenderMetrics(a->metrics),
              HasSubstr("backfill_rows_total{table=\"shop.outbox\"} 1234"));
}

TEST_F(BackfillWorkerTest, AnEmptySourceIsDoneAtOnce) {
  const std::string id = Start(Items());
  EXPECT_TRUE(Make(bus_)->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "done");
}

TEST_F(BackfillWorkerTest, RowsAfterTheStartAreLeftToTheTail) {
  Fill(250);
  const std::string id = Start(Items());
  EXPECT_TRUE(Make(bus_, "a", Millis(0))->worker->Turn().value());  // notes the highest key
  ASSERT_EQ(Of(id).state, "running") << "another is to go on with it";
  EXPECT_EQ(Of(id).highest, KeyTexts{"250"});
  db_.Run("INSERT INTO shop.items SELECT i, 'late', NULL, 1 FROM generate_series(251, 260) i");
  while (Of(id).state == "running") ASSERT_TRUE(Make(bus_, "b")->worker->Turn().ok());
  EXPECT_EQ(Sent(bus_), Rows(250));
}

// One that is cut off in the middle of a page has saved nothing of it; the next sends it again,
// under the same ids, and the one that comes back writes nothing.
TEST_F(BackfillWorkerTest, AnotherGoesOnFromTheLastAnswer) {
  Fill(1000);
  const std::string id = Start(Items());
  testing::FakeBus stuck;
  AddTopic(stuck);
  std::atomic<int> passed = 0;
  stuck.OnPublish([&](const std::string&, const pubsub::Message&) {
    if (++passed == 350) stuck.HoldPublishes(true);
    return absl::OkStatus();
  });
  const auto a = Make(stuck, "a");
  ASSERT_TRUE(a->worker->Start().ok());
  ASSERT_TRUE(testing::Eventually([&] { return passed >= 350; }));
  ASSERT_TRUE(testing::Eventually([&] {
    return db_.QueryInt("SELECT count(*) FROM lockstep.backfills WHERE rows_done > 0") == 1;
  }));
  // Never ahead of the answers.
  const std::set<std::string> before = Sent(stuck);
  const BackfillRecord cut = Of(id);
  EXPECT_EQ(cut.cursor, KeyTexts{fmt::format("{}", cut.rows_done)});
  for (int i = 1; i <= cut.rows_done; ++i) EXPECT_TRUE(before.contains(fmt::format("{}:1", i)));

  const auto b = Make(bus_, "b");
  ASSERT_TRUE(testing::Eventually([&] {  // a may renew it in between
    db_.Run("UPDATE lockstep.backfills SET lease_until = now() - interval '1 s'");
    return b->worker->Turn().value();
  }));
  const BackfillRecord done = Of(id);
  EXPECT_EQ(done.state, "done");
  std::set<std::string> all = Sent(bus_);
  EXPECT_EQ(*all.begin() == "1:1", cut.rows_done == 0);
  std::map<std::string, std::string> ids;
  for (const auto* bus : {&stuck, &bus_}) {
    for (const auto& published : bus->published()) {
      const auto& attributes = published.message.attributes;
      const auto [at, fresh] =
          ids.emplace(published.message.ordering_key, attributes.at("event_id"));
      EXPECT_EQ(at->second, attributes.at("event_id"));
    }
  }
  all.merge(Sent(stuck));
  EXPECT_EQ(all, Rows(1000));
  stuck.HoldPublishes(false);
  a->worker->Stop();
  EXPECT_EQ(Of(id).rows_done, done.rows_done);
  EXPECT_EQ(Of(id).state, "done");
}

TEST_F(BackfillWorkerTest, ABusThatIsAwayIsWaitedForAndSaidSo) {
  Fill(10);
  const std::string id = Start(Items());
  bus_.OnPublish([](const std::string&, const pubsub::Message&) {
    return absl::UnavailableError("no route");
  });
  const auto a = Make(bus_);
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "running");
  EXPECT_EQ(Of(id).failures, 1);
  EXPECT_THAT(Of(id).last_error, HasSubstr("no route"));
  EXPECT_FALSE(Of(id).cursor.has_value());
  EXPECT_FALSE(a->worker->Turn().value());  // not before its time
  bus_.OnPublish(nullptr);
  db_.Run("UPDATE lockstep.backfills SET retry_at = now()");
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "done");
  EXPECT_EQ(Of(id).last_error, "");
}

// A page whose reading is cancelled, for it took too long, is tried with half the rows.
// Pause and cancel while Pub/Sub owes the answers: no page is sent after those, and no cursor
// saved.
TEST_F(BackfillWorkerTest, ARepairSendsItsKeysAndTakesGhostsAway) {
  Fill(10);
  const Ghost ghost{{"77"}, "77", std::nullopt, 4, {{"id", 77}}};
  const Ghost back{{"5"}, "5", std::nullopt, 9, {{"id", 5}}};  // was made anew meanwhile
  const Ghost unknown{{}, "78", "acme", 2, {{"id", 78}}};
  const std::string id =
      store_.CreateRepair(Items(), {{"3"}, {"99"}}, {ghost, back, unknown}, "ann", "").value();
  EXPECT_TRUE(Make(bus_)->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "done");
  EXPECT_EQ(Of(id).rows_done, 5);
  std::vector<std::string> sent;
  for (const auto& published : bus_.published()) {
    const auto& attributes = published.message.attributes;
    EXPECT_EQ(attributes.at("lockstep_overwrite"), "true");
    sent.push_back(fmt::format(
        "{} v{}{} {}", attributes.at("aggregate_id"), attributes.at("version"),
        attributes.contains("lockstep_absent") ? " absent" : "", published.message.data));
  }
  EXPECT_THAT(sent, ::testing::ElementsAre(
                        R"(3 v1 {"id":3,"name":"item 3"})", R"(77 v4 absent {"id":77})",
                        R"(5 v1 {"id":5,"name":"item 5"})", R"(78 v2 absent {"id":78})"));
}

TEST_F(BackfillWorkerTest, ARepairOfWideRowsSendsThemAll) {
  Fill(10);
  db_.Run("UPDATE shop.items SET name = repeat('x', 5 << 20) WHERE id <= 8");
  std::vector<KeyTexts> keys;
  for (int i = 1; i <= 10; ++i) keys.push_back({fmt::format("{}", i)});
  const Ghost ghost{{}, "78", "acme", 2, {{"id", 78}}};
  const std::string id = store_.CreateRepair(Items(), keys, {ghost}, "ann", "").value();
  EXPECT_TRUE(Make(bus_)->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "done") << Of(id).last_error;
  EXPECT_EQ(Of(id).rows_done, 11);
  std::vector<std::string> sent;
  for (const auto& published : bus_.published()) {
    sent.push_back(published.message.attributes.at("aggregate_id"));
  }
  EXPECT_THAT(sent,
              ::testing::ElementsAre("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "78"));
}

// Where failover or a mistake has put another server in the replica's place.
TEST_F(BackfillWorkerTest, WhatIsNoReplicaIsBelievedOnlyWhereItIsThePrimary) {
  Fill(10);
  const auto a = Make(bus_, "a", Millis(600'000), "", Millis(60'000), db_.url());
  const std::string id = Start(Items());
  // As of one that was promoted before it had come so far.
  db_.Run(
      "UPDATE lockstep.backfills SET begun_at = now(), highest = '{10}', start_lsn = "
      "'FFFFFFFF/0'");
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "running");
  EXPECT_THAT(Of(id).last_error, HasSubstr("is no replica"));
  EXPECT_TRUE(bus_.published().empty());
  db_.Run("UPDATE lockstep.backfills SET retry_at = now(), start_lsn = '0/0'");
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "done") << Of(id).last_error;
  EXPECT_EQ(Sent(bus_), Rows(10));
}

// Beside the relay: no more than its role's rights, and no writer waits for a page.
TEST_F(BackfillWorkerTest, ReadsWithThePublishersRightsAlone) {
  Fill(10);
  const std::string role = "pub_" + db_.name();
  db_.Run("CREATE ROLE " + role + " LOGIN; SELECT lockstep.grant_publisher('shop.outbox', '" +
          role + "')");
  const std::string id = Start(Items());
  const auto a = Make(bus_, "a", Millis(600'000), db_.UrlAs(role));
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_THAT(Of(id).last_error, HasSubstr("the role that reads it needs SELECT"));
  db_.Run("GRANT SELECT ON shop.items TO " + role);
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kResume, id, "ann", "").ok());
  EXPECT_TRUE(a->worker->Turn().value());
  EXPECT_EQ(Of(id).state, "done") << Of(id).last_error;
  db_.Run("REVOKE ALL ON shop.items FROM " + role +
          "; SELECT lockstep.revoke_rights('shop.outbox', '" + role + "')");
  db_.Run("DROP ROLE " + role);
}

TEST_F(BackfillWorkerTest, AStopDoesNotWaitForALongScan) {
  Fill(10);
  Declaration slow = Items();
  slow.table = "";
  slow.query = "SELECT i.* FROM shop.items i, LATERAL (SELECT pg_sleep(100 + 0 * i.id) OFFSET 0) s";
  const std::string id = Start(slow);
  const auto a = Make(bus_);
  ASSERT_TRUE(a->worker->Start().ok());
  ASSERT_TRUE(testing::Eventually([&] {
    return db_.QueryInt(
               "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND "
               "datname = current_database()") > 0;
  }));
  a->worker->Stop();  // the test's time limit is below the query's
  EXPECT_EQ(Of(id).state, "running");
  EXPECT_FALSE(Of(id).leased);
  EXPECT_EQ(Of(id).failures, 0);
}

TEST_F(BackfillWorkerTest, IsAServiceLikeAnyOther) {
  const auto publisher = bus_.NewPublisher({});
  MetricsRegistry metrics;
  testing::StressService([&] {
    return std::make_unique<BackfillWorker>(
        BackfillWorker::Options{.database = db_.url(), .instance = "a", .outboxes = {kTable}},
        *publisher, [](const std::string&) { return kTopic; }, metrics);
  });
}

}  // namespace
}  // namespace lockstep::publisher
