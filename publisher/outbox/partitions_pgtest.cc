#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "postgres/sql_error.h"
#include "publisher/outbox/partitions.h"
#include "publisher/testing/outbox_test.h"
#include "publisher/upkeep/housekeeper.h"
#include "tests/support/eventually.h"

namespace lockstep::publisher {
namespace {

const postgres::QualifiedName kPartitionedOutbox{"shop", "outbox"};
constexpr Millis kSevenDays = std::chrono::hours(7 * 24);

// Rows come into a partition of long ago at first: as if no publisher had been there since.
class PartitionsTest : public OutboxTest {
 protected:
  PartitionsTest() : OutboxTest(/*partitioned=*/true) {}

  // Rows come into the partition of that day from now on.
  void GoTo(int days_ago) {
    db_.Query(
        "SELECT lockstep.make_partition('shop.outbox', n), setval('shop.outbox_sequence_seq', n << "
        "36, false) FROM (SELECT lockstep.partition_at('day', now()) - $1::bigint AS n) d",
        postgres::Params(days_ago));
  }
  // How many days ago that of a row was for.
  int64_t DaysAgo(int64_t sequence) {
    return db_.QueryInt("SELECT lockstep.partition_at('day', now()) - ($1::bigint >> 36)",
                        postgres::Params(sequence));
  }
  void Publish(const std::string& where, int days_ago) {
    db_.Run(fmt::format(
        "UPDATE shop.outbox_status SET published_at = now() - interval '{} days' WHERE {}",
        days_ago, where));
  }
  int64_t Partitions(const std::string& of = "shop.outbox") {
    return db_.QueryInt("SELECT count(*) FROM pg_inherits WHERE inhparent = $1::regclass",
                        postgres::Params(of));
  }
  absl::Status Try(const std::string& sql) { return connection_->Execute(sql).status(); }
  DroppedPartition Drop(Millis older_than = kSevenDays) {
    auto dropped = DropPartition(*connection_, kPartitionedOutbox, older_than);
    EXPECT_TRUE(dropped.ok()) << dropped.status();
    return dropped.ok() ? *dropped : DroppedPartition{};
  }

  std::unique_ptr<postgres::Connection> connection_ = db_.Connect();
};

constexpr char kInsertOther[] =
    "INSERT INTO shop.outbox (topic, aggregate_type, aggregate_id, event_type, version, payload, "
    "event_id) VALUES ('shop.events', 'item', 'other', 'T', 1, 'p', "
    "'00000000-0000-4000-8000-000000000001')";

TEST_F(PartitionsTest, AreMadeAheadAndRowsGoOnToTheOneOfToday) {
  EXPECT_EQ(*MakePartitions(*connection_, kPartitionedOutbox), 0)
      << "they are made with the outbox";
  const std::string last(
      db_.Query("SELECT lockstep.partition_name('day', lockstep.partition_at('day', now()) + 2)")
          .Text(0, 0));
  db_.Run(fmt::format("DROP TABLE shop.outbox_{0}, shop.outbox_log_{0}", last));
  EXPECT_EQ(*MakePartitions(*connection_, kPartitionedOutbox), 1);
  const int64_t before = Enqueue("k", 1);
  EXPECT_GT(DaysAgo(before), 20'000) << "nobody went on: rows stay in the last one";
  EXPECT_TRUE(*AdvancePartition(*connection_, kPartitionedOutbox));
  EXPECT_FALSE(*AdvancePartition(*connection_, kPartitionedOutbox));
  EXPECT_EQ(DaysAgo(Enqueue("k", 2)), 0);
  EXPECT_LT(Enqueue("k", 3), int64_t{1} << 53) << "JSON has no more";
  EXPECT_EQ(Names(NewClaimer("a").Take()), "k:1 k:2 k:3");
}

TEST_F(PartitionsTest, HaveEventIdsAndVersionsOnceAmongThem) {
  const int64_t first = db_.QueryInt(
      "SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', 'T', 5, 'p', "
      "'00000000-0000-4000-8000-000000000001')");
  ASSERT_TRUE(*AdvancePartition(*connection_, kPartitionedOutbox));
  EXPECT_EQ(db_.QueryInt("SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', 'T', 5, 'p', "
                         "'00000000-0000-4000-8000-000000000001')"),
            first);
  EXPECT_EQ(db_.QueryInt(
                "SELECT (lockstep.enqueue_many('shop.outbox', '{t,t}', '{item,item}', '{k,new}', "
                "'{T,T}', '{5,1}', '{p,p}', ARRAY['00000000-0000-4000-8000-000000000001', "
                "gen_random_uuid()]::uuid[]))[1]"),
            first);
  EXPECT_EQ(postgres::SqlState(Try(kInsertOther)), "23505");
  EXPECT_TRUE(Try(std::string(kInsertOther) + " ON CONFLICT DO NOTHING").code() !=
              absl::StatusCode::kOk)
      << "only enqueue answers an event of another partition";
  for (const int version : {5, 4}) {
    EXPECT_EQ(
        postgres::SqlState(Try(fmt::format(
            "SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', 'T', {}, 'p')", version))),
        "23505");
  }
  EXPECT_EQ(Count("true"), 2);
}

TEST_F(PartitionsTest, GoingOnWaitsForWhoHasWrittenSoThatNothingIsTwice) {
  const auto writer = db_.Connect();
  auto transaction = writer->Begin();
  ASSERT_TRUE(transaction->Execute(kInsertOther).ok());
  const auto advanced = AdvancePartition(*connection_, kPartitionedOutbox);
  EXPECT_TRUE(IsBusy(advanced.status())) << advanced.status();
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_TRUE(*AdvancePartition(*connection_, kPartitionedOutbox));
  EXPECT_EQ(postgres::SqlState(Try(kInsertOther)), "23505");
}

TEST_F(PartitionsTest, GoWithTheirLogWhenAllTheirRowsWerePublishedLongAgo) {
  GoTo(9);
  EnqueueMany("k", 3);
  GoTo(8);
  EnqueueMany("young", 3);
  GoTo(0);
  EnqueueMany("new", 3);
  Publish("aggregate_id = 'k'", 8);
  Publish("aggregate_id = 'young' AND version < 3", 8);
  Publish("aggregate_id = 'young' AND version = 3", 6);
  const int64_t before = Partitions();
  EXPECT_EQ(Drop().name, "shop.outbox_19700101") << "it is empty";
  EXPECT_EQ(Drop().stays_below, 0) << "it was dropped";
  EXPECT_EQ(Drop().name, "");
  EXPECT_EQ(Partitions(), before - 2);
  EXPECT_EQ(Partitions("shop.outbox_published"), before - 2);
  EXPECT_EQ(Count("aggregate_id = 'k'"), 0);
  EXPECT_EQ(Count("true"), 6);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_published"), 3);
}

TEST_F(PartitionsTest, StayWhileARowIsNotPublishedAndAreCleanedByRowsMeanwhile) {
  const struct {
    int days_ago;
    const char* change;
  } cases[] = {{9, "attempts = 1"},
               {10, "dead_at = now(), available_at = 'infinity'"},
               {11, "quarantined_at = now(), available_at = 'infinity'"},
               {12, "lock_token = gen_random_uuid(), locked_at = now()"}};
  for (const auto& [days_ago, change] : cases) {
    GoTo(days_ago);
    const std::string key = fmt::format("k{}", days_ago);
    EnqueueMany(key, 3);
    Publish(fmt::format("aggregate_id = '{}' AND version < 3", key), 8);
    db_.Run(fmt::format(
        "UPDATE shop.outbox_status SET {} WHERE aggregate_id = '{}' AND version = 3", change, key));
  }
  Housekeeper housekeeper({}, db_.url(), {{kTable, true, true}});
  ASSERT_TRUE(housekeeper.Round().ok());
  EXPECT_EQ(Partitions(), 7) << "these four, and those of today and tomorrow and the day after";
  EXPECT_EQ(DaysAgo(Enqueue("new", 1)), 0) << "it went on";
  EXPECT_EQ(Count("published_at IS NULL"), 5);
  EXPECT_EQ(Count("published_at IS NOT NULL"), 0);
  Publish("published_at IS NULL AND aggregate_id <> 'new'", 8);
  ASSERT_TRUE(housekeeper.Round().ok());
  EXPECT_EQ(Partitions(), 3);
  EXPECT_EQ(Count("true"), 1);
}

TEST_F(PartitionsTest, AnInsertThatIsUnderWayKeepsItsPartition) {
  db_.Run("ALTER FUNCTION lockstep.drop_partition SET lock_timeout = '60s'");  // it is waited for
  GoTo(9);
  Enqueue("k", 1);
  Publish("true", 8);
  Drop();  // of 1970
  const auto writer = db_.Connect();
  auto transaction = writer->Begin();
  ASSERT_TRUE(transaction->Execute(kInsertOther).ok());
  db_.Run("SELECT setval('shop.outbox_sequence_seq', lockstep.partition_at('day', now()) << 36)");
  absl::StatusOr<DroppedPartition> dropped;
  std::jthread thread(
      [&] { dropped = DropPartition(*connection_, kPartitionedOutbox, kSevenDays); });
  EXPECT_TRUE(testing::Eventually([&] {
    return db_.QueryInt(
               "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = "
               "'AccessExclusiveLock' AND relation = 'shop.outbox'::regclass") == 1;
  }));
  ASSERT_TRUE(transaction->Commit().ok());
  thread.join();
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_EQ(dropped->name, "");
  EXPECT_EQ(Count("published_at IS NULL"), 1);
}

TEST_F(PartitionsTest, AReaderIsNotWaitedForLong) {
  const auto reader = db_.Connect();
  auto transaction = reader->Begin();
  ASSERT_TRUE(transaction->Execute("SELECT count(*) FROM shop.outbox").ok());
  GoTo(0);
  EXPECT_TRUE(IsBusy(DropPartition(*connection_, kPartitionedOutbox, kSevenDays).status()));
  Housekeeper housekeeper({}, db_.url(), {{kTable, true, true}});
  EXPECT_TRUE(housekeeper.Round().ok()) << "it is tried again";
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_EQ(Drop().name, "shop.outbox_19700101");
}

TEST_F(PartitionsTest, APublisherKeepsThemAndDoesNothingElseToTables) {
  const std::string relay = db_.name() + "_relay";
  const std::string writer = db_.name() + "_writer";
  for (const std::string& role : {writer, relay}) db_.Run("CREATE ROLE " + role + " LOGIN");
  db_.Run(
      fmt::format("SELECT lockstep.grant_writer('shop.outbox', '{}'), "
                  "lockstep.grant_publisher('shop.outbox', '{}')",
                  writer, relay));
  const auto as_relay = *postgres::Connection::Open({.url = db_.UrlAs(relay)});
  const auto as_writer = *postgres::Connection::Open({.url = db_.UrlAs(writer)});
  EXPECT_TRUE(
      as_writer->Execute("SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', 'T', 1, 'p')")
          .ok());
  EXPECT_EQ(*MakePartitions(*as_relay, kPartitionedOutbox), 0);
  EXPECT_TRUE(*AdvancePartition(*as_relay, kPartitionedOutbox));
  Publish("true", 8);
  EXPECT_EQ(DropPartition(*as_relay, kPartitionedOutbox, kSevenDays)->name, "shop.outbox_19700101");
  for (const char* sql :
       {"SELECT lockstep.make_partition('shop.outbox', 1)", "CREATE TABLE shop.mine (n int)",
        "DROP TABLE shop.outbox", "SELECT setval('shop.outbox_sequence_seq', 1)"}) {
    EXPECT_EQ(postgres::SqlState(as_relay->Execute(sql).status()), "42501") << sql;
  }
  EXPECT_EQ(postgres::SqlState(MakePartitions(*as_writer, kPartitionedOutbox).status()), "42501");
  EXPECT_EQ(postgres::SqlState(DropPartition(*as_writer, kPartitionedOutbox, kSevenDays).status()),
            "42501");
  for (const std::string& role : {writer, relay}) {
    db_.Run(
        fmt::format("SELECT lockstep.revoke_rights('shop.outbox', '{0}'); DROP ROLE {0}", role));
  }
}

TEST_F(PartitionsTest, AnHourIsAUnitToo) {
  db_.Run("SELECT lockstep.create_outbox('shop.hourly', partition => 'hour')");
  EXPECT_EQ(Partitions("shop.hourly"), 3);
  EXPECT_LT(db_.QueryInt("SELECT lockstep.enqueue('shop.hourly', 't', 'item', 'k', 'T', 1, 'p')"),
            int64_t{1} << 53);
  db_.Run("SELECT lockstep.drop_outbox('shop.hourly', true)");
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM pg_class WHERE relname LIKE 'hourly%'"), 0);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM pg_proc WHERE proname LIKE 'hourly%'"), 0);
}

}  // namespace
}  // namespace lockstep::publisher
