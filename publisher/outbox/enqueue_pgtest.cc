// lockstep.enqueue and the functions around it, as any language calls them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/migrator.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outbox_rows.h"
#include "publisher/testing/outbox_test.h"
#include "sql/migrations.h"
#include "tests/support/eventually.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;

class EnqueueTest : public OutboxTest, public ::testing::WithParamInterface<bool> {
 protected:
  EnqueueTest() : OutboxTest(/*partitioned=*/GetParam()) {}

  // The error of lockstep.enqueue('shop.outbox', …), or OK.
  absl::Status Try(const std::string& arguments) {
    return connection_->Execute("SELECT lockstep.enqueue('shop.outbox', " + arguments + ")")
        .status();
  }

  std::unique_ptr<postgres::Connection> connection_ = db_.Connect();
};

INSTANTIATE_TEST_SUITE_P(Tables, EnqueueTest, ::testing::Bool(), [](const auto& partitioned) {
  return partitioned.param ? "Partitioned" : "Plain";
});

TEST_P(EnqueueTest, RollingBackLeavesNothing) {
  {
    auto transaction = connection_->Begin();
    ASSERT_TRUE(transaction
                    ->Execute("SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', "
                              "'T', 1, 'p')")
                    .ok());
    ASSERT_TRUE(transaction->Rollback().ok());
  }
  EXPECT_EQ(Count("true"), 0);
  EXPECT_EQ(Enqueue("k", 1), 2);  // the sequence has a gap, and that is all
}

TEST_P(EnqueueTest, ARepeatedEventIdAnswersTheFirstSequence) {
  const std::string id = "event_id => '00000000-0000-4000-8000-000000000001'";
  ASSERT_TRUE(Try("'t', 'item', 'k', 'T', 1, 'p', " + id).ok());
  Enqueue("k", 2);
  const auto again = connection_->Execute(
      "SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', 'T', 1, 'p', " + id + ")");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->Int(0, 0), 1);
  EXPECT_EQ(Count("true"), 2);
}

TEST_P(EnqueueTest, RefusesAVersionThatIsNotAboveTheHighest) {
  Enqueue("k", 5);
  for (const int version : {1, 4, 5}) {
    const absl::Status refused = Try(fmt::format("'t', 'item', 'k', 'T', {}, 'p'", version));
    EXPECT_EQ(postgres::SqlState(refused), "23505");
    EXPECT_THAT(std::string(MessageOf(refused)),
                HasSubstr(fmt::format("version {} of item \"k\" is not above 5", version)));
  }
  EXPECT_TRUE(Try("'t', 'item', 'k', 'T', 6, 'p'").ok());
  EXPECT_TRUE(Try("'t', 'item', 'k', 'T', 1, 'p', tenant_id => 'x'").ok());
  EXPECT_TRUE(Try("'t', 'other', 'k', 'T', 1, 'p'").ok());
}

TEST_P(EnqueueTest, ANullTenantDoesNotSwitchTheVersionConstraintOff) {
  Enqueue("k", 1);
  const absl::Status refused =
      connection_
          ->Execute(
              "INSERT INTO shop.outbox (event_id, topic, aggregate_type, aggregate_id, "
              "event_type, version, payload) VALUES (gen_random_uuid(), 't', 'item', 'k', "
              "'T', 1, 'p')")
          .status();
  EXPECT_EQ(postgres::SqlState(refused), "23505");
}

TEST_P(EnqueueTest, RefusesWhatPubsubWouldRefuse) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"'Upper', 'item', 'k', 'T', 1, 'p'", "topic"},
      {"'a_b', 'item', 'k', 'T', 1, 'p'", "topic"},
      {"repeat('a', 128), 'item', 'k', 'T', 1, 'p'", "topic"},
      {"'', 'item', 'k', 'T', 1, 'p'", "topic"},
      {"NULL, 'item', 'k', 'T', 1, 'p'", "topic"},
      {"'t', 'item', 'k', 'a-b', 1, 'p'", "event type"},
      {"'t', 'item', 'k', 'a..b', 1, 'p'", "event type"},
      {"'t', 'item', 'k', '1a', 1, 'p'", "event type"},
      {"'t', 'item', repeat('k', 1025), 'T', 1, 'p'", "ordering key"},
      {"'t', 'item', '', 'T', 1, 'p'", "ordering key"},
      {"'t', 'item', 'k', 'T', 0, 'p'", "the version must be 1 or more"},
      {"'t', 'item', 'k', 'T', 1, NULL", "payload"},
      {"'t', 'item', 'k', 'T', 1, decode(repeat('00', 10000000), 'hex')", "10 MB"},
      {"'t', 'item', 'k', 'T', 1, 'p', attributes => '[]'", "JSON object"},
      {"'t', 'item', 'k', 'T', 1, 'p', attributes => '{\"a\": 1}'", "not a string"},
      {"'t', 'item', 'k', 'T', 1, 'p', attributes => '{\"googclient\": \"x\"}'", "goog"},
      {"'t', 'item', 'k', 'T', 1, 'p', attributes => '{\"version\": \"9\"}'", "set by Lockstep"},
      {"'t', 'item', 'k', 'T', 1, 'p', attributes => jsonb_build_object('a', repeat('x', 1025))",
       "1024 bytes"},
      {"'t', 'item', 'k', 'T', 1, 'p', attributes => jsonb_build_object(repeat('a', 257), 'x')",
       "256 bytes"},
      {"'t', 'item', 'k', 'T', 1, 'p', attributes => (SELECT jsonb_object_agg('a' || i, 'x') "
       "FROM generate_series(1, 88) i)",
       "87 attributes"},
      {"'t', 'item', 'k', 'T', 1, 'p', tracestate => repeat('x', 1025)", "1024 bytes"},
      {"'t', 'item', 'k', 'T', 1, 'p', attributes => '{\"lockstep_mine\": \"x\"}'",
       "set by Lockstep"}};
  for (const auto& [arguments, words] : cases) {
    const absl::Status refused = Try(arguments);
    EXPECT_THAT(std::string(MessageOf(refused)), HasSubstr(words)) << arguments;
    EXPECT_EQ(postgres::Classify(refused), postgres::ErrorClass::kData) << arguments;
  }
  EXPECT_EQ(Count("true"), 0);
  EXPECT_TRUE(Try("'t', 'item', 'k', 'video.events.VideoCreated', 1, 'p'").ok());
  EXPECT_TRUE(Try("'t', 'item', 'k', 'VIDEO_CREATED', 2, ''").ok());
  EXPECT_TRUE(Try("'t', 'item', 'k', 'T', 3, decode(repeat('00', 9990000), 'hex')").ok());
}

TEST_P(EnqueueTest, RefusesWhatNoReaderKnows) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1, 'p', occurred_at => 'infinity'", "years 1 to 9999"},
      {"1, 'p', occurred_at => '-infinity'", "years 1 to 9999"},
      {"1, 'p', occurred_at => '0001-12-31 00:00:00+00 BC'", "years 1 to 9999"},
      {"1, 'p', occurred_at => '10000-01-01 00:00:00+00'", "years 1 to 9999"},
      {"9223372036854775807, 'p'", "end of bigint"},
      {"9000000000000000001, 'p'", "end of bigint"},
      {"1, 'p', content_type => 'json'", "content type"},
      {"1, 'p', content_type => 'text/plain'", "content type"},
      {"1, 'p', content_type => NULL", "content type"}};
  for (const auto& [arguments, words] : cases) {
    const absl::Status refused = Try("'t', 'item', 'k', 'T', " + arguments);
    EXPECT_THAT(std::string(MessageOf(refused)), HasSubstr(words)) << arguments;
    EXPECT_EQ(postgres::Classify(refused), postgres::ErrorClass::kData) << arguments;
  }
  EXPECT_EQ(Count("true"), 0);
  EXPECT_TRUE(Try("'t', 'item', 'k', 'T', 1, 'p', content_type => 'application/json', "
                  "occurred_at => '0001-01-01 00:00:00+00'")
                  .ok());
  EXPECT_TRUE(Try("'t', 'item', 'k', 'T', 9000000000000000000, 'p', occurred_at => "
                  "'9999-12-31 23:59:59.999999+00'")
                  .ok());
}

// A commit in doubt is made again at once: the second finds no row, and then its own index entries
// meet those of the first. An index whose expression waits stands between the two moments.
TEST_P(EnqueueTest, ARepeatedEventIsRecognisedWhicheverIndexMeetsIt) {
  db_.Run(postgres::FillNames(R"sql(
    CREATE FUNCTION shop.wait(event_type text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
      IF current_setting('application_name') = 'second' THEN PERFORM pg_advisory_xact_lock(77); END IF;
      RETURN event_type;
    END $$;
    DO $$ DECLARE own name; BEGIN
      FOR own IN SELECT conname FROM pg_constraint WHERE conrelid = '{table}'::regclass AND contype = 'u' LOOP
        EXECUTE format('ALTER TABLE {table} DROP CONSTRAINT %I', own);
      END LOOP;
    END $$;
    CREATE INDEX ON {table} (shop.wait(event_type));
    ALTER TABLE {table} ADD UNIQUE (event_id),
      ADD UNIQUE NULLS NOT DISTINCT (aggregate_id, version, aggregate_type, tenant_id))sql",
                              {{"table", GetParam() ? "shop.outbox_19700101" : "shop.outbox"}}));
  constexpr char kEnqueue[] =
      "SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', 'T', 1, 'p', "
      "event_id => '00000000-0000-4000-8000-000000000001')";
  ASSERT_TRUE(connection_->Execute("SELECT pg_advisory_lock(77)").ok());
  absl::StatusOr<postgres::Result> second;
  std::jthread thread([&] {
    auto connection = postgres::Connection::Open({.url = db_.url(), .application_name = "second"});
    second = connection.ok() ? (*connection)->Execute(kEnqueue) : connection.status();
  });
  EXPECT_TRUE(testing::Eventually([&] {
    return db_.QueryInt(
               "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'second' AND "
               "wait_event_type = 'Lock' AND datname = current_database()") == 1;
  }));
  const auto first = connection_->Execute(kEnqueue);
  EXPECT_TRUE(connection_->Execute("SELECT pg_advisory_unlock(77)").ok());
  thread.join();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->Int(0, 0), first->Int(0, 0));
  EXPECT_EQ(Count("true"), 1);
}

TEST_P(EnqueueTest, MakesTheTransactionDurableWhateverTheSourceSays) {
  for (const char* setting : {"off", "local", "remote_write"}) {
    auto transaction = connection_->Begin();
    ASSERT_TRUE(
        transaction->Execute(fmt::format("SET LOCAL synchronous_commit = {}", setting)).ok());
    ASSERT_TRUE(transaction
                    ->Execute("SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', "
                              "'T', 1, 'p')")
                    .ok());
    EXPECT_EQ(transaction->Execute("SHOW synchronous_commit")->Text(0, 0), "on") << setting;
  }
}

TEST_P(EnqueueTest, TakesAPayloadOfJsonAndWhatIsNotTypedAsBytes) {
  ASSERT_TRUE(Try("'t', 'item', 'k', 'T', 1, jsonb_build_object('a', 1)").ok());
  ASSERT_TRUE(Try("'t', 'item', 'k', 'T', 2, '\\x6869'").ok());
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox WHERE version = 1 AND content_type = "
                         "'application/json' AND convert_from(payload, 'UTF8')::jsonb = '{\"a\": "
                         "1}'"),
            1);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox WHERE version = 2 AND content_type = "
                         "'application/protobuf' AND payload = 'hi'"),
            1);
}

TEST_P(EnqueueTest, ManyAreAnsweredInTheirOrderAndRepeatedOnesByTheFirst) {
  const auto many = [&](const std::string& arguments) {
    return connection_->Execute("SELECT lockstep.enqueue_many('shop.outbox', " + arguments +
                                ")::text");
  };
  const std::string two =
      "'{t,t}', '{item,item}', '{k,l}', '{T,T}', '{1,1}', '{a,b}', event_ids => "
      "'{00000000-0000-4000-8000-000000000001,00000000-0000-4000-8000-000000000002}'";
  EXPECT_EQ(many(two)->Text(0, 0), "{1,2}");
  EXPECT_EQ(many(two)->Text(0, 0), "{1,2}");
  EXPECT_EQ(many("'{t,t,t}', '{item,item,item}', '{k,k,k}', '{T,T,T}', '{2,3,2}', '{a,b,c}', "
                 "event_ids => '{00000000-0000-4000-8000-000000000003,NULL,"
                 "00000000-0000-4000-8000-000000000003}', tenant_ids => '{NULL,NULL,NULL}'")
                .status()
                .ok(),
            true);
  EXPECT_EQ(Count("aggregate_id = 'k'"), 3);
  EXPECT_EQ(many("'{}', '{}', '{}', '{}', '{}', '{}'")->Text(0, 0), "{}");
  const auto lower = many("'{t}', '{item}', '{k}', '{T}', '{1}', '{a}'").status();
  EXPECT_EQ(postgres::SqlState(lower), "23505");
  EXPECT_THAT(std::string(MessageOf(lower)), HasSubstr("version 1 of item \"k\" is not above 3"));
  EXPECT_THAT(std::string(MessageOf(
                  many("'{t,t}', '{item,item}', '{k,l}', '{T,T}', '{8,9}', '{a}'").status())),
              HasSubstr("differ in length"));
  EXPECT_THAT(
      std::string(MessageOf(many("'{Upper}', '{item}', '{k}', '{T}', '{4}', '{a}'").status())),
      HasSubstr("topic"));
}

constexpr char kPlain[] =
    "INSERT INTO shop.outbox (topic, aggregate_type, aggregate_id, event_type, version, payload) "
    "VALUES ";

TEST_P(EnqueueTest, APlainInsertIsAsGood) {
  ASSERT_TRUE(connection_
                  ->Execute(std::string(kPlain) +
                            "('t', 'item', 'k', 'T', 1, 'p'), ('t', 'item', 'k', 'T', 2, 'p'), "
                            "('t', 'item', 'l', 'T', 1, 'p')")
                  .ok());
  EXPECT_EQ(Count("substr(event_id::text, 15, 1) = '7'"), 3);
  EXPECT_EQ(Names(NewClaimer("a").Take()), "k:1 k:2 l:1");
}

TEST_P(EnqueueTest, APlainInsertIsRefusedWholeForOneBadEvent) {
  Enqueue("k", 5);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"('t', 'item', 'm', 'T', 1, 'p'), ('t', 'item', 'k', 'T', 4, 'p')", "not above 5"},
      {"('t', 'item', 'm', 'T', 2, 'p'), ('t', 'item', 'm', 'T', 1, 'p')", "not above 2"},
      {"('Upper', 'item', 'm', 'T', 1, 'p')", "topic"},
      {"('t', 'item', 'm', 'a..b', 1, 'p')", "event type"},
      {"('t', 'item', repeat('k', 1025), 'T', 1, 'p')", "ordering key"},
      {"('t', 'item', 'm', 'T', 0, 'p')", "must be 1 or more"},
      {"('t', 'item', 'm', 'T', 1, decode(repeat('00', 10000000), 'hex'))", "10 MB"}};
  for (const auto& [rows, words] : cases) {
    const absl::Status refused = connection_->Execute(kPlain + rows).status();
    EXPECT_THAT(std::string(MessageOf(refused)), HasSubstr(words)) << rows;
    EXPECT_EQ(postgres::Classify(refused), postgres::ErrorClass::kData) << rows;
  }
  EXPECT_EQ(Count("true"), 1);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_pending"), 1);
}

// What looks for higher versions must not look at all of them for each.
TEST_P(EnqueueTest, VeryManyVersionsOfOneAggregateMayComeInOneStatement) {
  ASSERT_TRUE(connection_->Run("SET statement_timeout = '20s'").ok());
  for (const char* attributes : {"{}", "{\"a\": \"b\"}"}) {
    const absl::Status inserted = connection_->Run(fmt::format(
        "INSERT INTO shop.outbox (topic, aggregate_type, aggregate_id, event_type, version, "
        "payload, attributes) SELECT 't', 'item', '{0}', 'T', v, 'p', '{0}' FROM "
        "generate_series(1, 20000) v",
        attributes));
    EXPECT_TRUE(inserted.ok()) << inserted;
  }
  // One that is out of place is found among them.
  const absl::Status refused = connection_->Run(
      "INSERT INTO shop.outbox (topic, aggregate_type, aggregate_id, event_type, version, payload) "
      "SELECT 't', 'item', 'k', 'T', CASE WHEN v = 50 THEN 1000 ELSE v END, 'p' FROM "
      "generate_series(1, 100) v");
  EXPECT_THAT(std::string(MessageOf(refused)), HasSubstr("not above 1000"));
}

TEST_P(EnqueueTest, APlainInsertMakesTheTransactionDurableAndWakesWhoSleeps) {
  const auto sleeper = db_.Connect();
  const auto channel = db_.Query("SELECT lockstep.wake_channel('shop.outbox')");
  ASSERT_TRUE(sleeper->Listen(std::string(channel.Text(0, 0))).ok());
  ASSERT_TRUE(
      sleeper->Execute("SELECT pg_advisory_lock(lockstep.lock_key('wake', 'shop.outbox', 0))")
          .ok());
  auto transaction = connection_->Begin();
  ASSERT_TRUE(transaction->Execute("SET LOCAL synchronous_commit = off").ok());
  ASSERT_TRUE(transaction->Execute(std::string(kPlain) + "('t', 'item', 'k', 'T', 1, 'p')").ok());
  EXPECT_EQ(transaction->Execute("SHOW synchronous_commit")->Text(0, 0), "on");
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_TRUE(testing::Eventually([&] {
    const auto told = sleeper->TakeNotifications();
    return told.ok() && told->size() == 1 && (*told)[0].payload == "0";
  }));
}

TEST_P(EnqueueTest, WhatBecameOfAnEventGoesWithIt) {
  EnqueueMany("k", 3);
  Claimer claimer = NewClaimer("a");
  const Claim claim = claimer.Take();
  ASSERT_TRUE(claimer.store->MarkPublished({{Shared(claim.rows[0]), "m"}}).ok());
  db_.Run("DELETE FROM shop.outbox WHERE version < 3");
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_pending"), 1);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_published"), 0);
  db_.Run("TRUNCATE shop.outbox");
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_pending"), 0);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_leases"), 0);
}

// The queue keeps an aggregate's order by hash, and another server may hash otherwise.
TEST_P(EnqueueTest, AQueueThatWasHashedElsewhereIsHashedAnew) {
  EnqueueMany("k", 2);
  db_.Run(
      "UPDATE shop.outbox_pending SET aggregate_hash = version; "
      "UPDATE lockstep.outboxes SET hash_probe = 1");
  const auto refused = OutboxStore::Open(*connection_, {"shop", "outbox"});
  EXPECT_THAT(std::string(MessageOf(refused.status())), HasSubstr("lockstep.rehash"));
  db_.Run("SELECT lockstep.rehash('shop.outbox')");
  EXPECT_TRUE(OutboxStore::Open(*connection_, {"shop", "outbox"}).ok());
  EXPECT_EQ(db_.QueryInt("SELECT count(DISTINCT aggregate_hash) FROM shop.outbox_pending WHERE "
                         "aggregate_hash = lockstep.aggregate_hash('k', 'item', NULL)"),
            1);
}

TEST_P(EnqueueTest, GeneratesTimeOrderedIds) {
  for (int i = 1; i <= 3; ++i) {
    Enqueue("k", i);
    db_.Query("SELECT pg_sleep(0.002)");  // the ids' clock counts milliseconds
  }
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM (SELECT event_id < lead(event_id) OVER (ORDER BY "
                         "sequence) AS up FROM shop.outbox) s WHERE up"),
            2);
  EXPECT_EQ(Count("substr(event_id::text, 15, 1) = '7'"), 3);
}

TEST_P(EnqueueTest, CarriesTraceContextAndTime) {
  ASSERT_TRUE(Try("'t', 'item', 'k', 'T', 1, 'p', traceparent => '00-a-b-01', tracestate => "
                  "'x=1,y=2', occurred_at => '2026-01-02 03:04:05.678+00'")
                  .ok());
  Claimer claimer = NewClaimer("a");
  const Claim claim = claimer.Take();
  ASSERT_EQ(claim.rows.size(), 1u);
  EXPECT_EQ(claim.rows[0].traceparent, "00-a-b-01");
  EXPECT_EQ(claim.rows[0].tracestate, "x=1,y=2");
  EXPECT_EQ(claim.rows[0].occurred_at, "2026-01-02T03:04:05.678000Z");
}

TEST_P(EnqueueTest, AnOutboxMayHaveAnyName) {
  db_.Run("SELECT lockstep.create_outbox('\"Odd schema\".\"it''s \"\"quoted\"\"\"')");
  db_.Run(
      "SELECT lockstep.enqueue('\"Odd schema\".\"it''s \"\"quoted\"\"\"', 't', 'item', 'k', "
      "'T', 1, 'p')");
  auto store = OutboxStore::Open(*connection_, {"Odd schema", "it's \"quoted\""});
  ASSERT_TRUE(store.ok()) << store.status();
  ClaimRequest request;
  request.token = "00000000-0000-4000-8000-000000000001";
  ClaimCursor cursor;
  EXPECT_EQ((*store)->ClaimRows(request, cursor)->rows.size(), 1u);
}

TEST_P(EnqueueTest, MakingAnOutboxTwiceIsHarmlessAndATableIsNotTaken) {
  db_.Run("SELECT lockstep.create_outbox('shop.outbox')");
  db_.Run("CREATE TABLE shop.plain (a int)");
  for (const char* name : {"shop.plain", "outbox", "a.b.c"}) {
    EXPECT_FALSE(
        connection_->Execute(fmt::format("SELECT lockstep.create_outbox('{}')", name)).ok())
        << name;
  }
  EXPECT_THAT(std::string(MessageOf(connection_
                                        ->Execute("SELECT lockstep.enqueue('shop.plain', 't', "
                                                  "'item', 'k', 'T', 1, 'p')")
                                        .status())),
              HasSubstr("is not an outbox"));
}

TEST_P(EnqueueTest, AnOutboxWithUnpublishedRowsIsNotDroppedUnlessForced) {
  Enqueue("k", 1);
  postgres::Migrator migrator(*connection_, "lockstep", sql::OutboxMigrations());
  EXPECT_THAT(std::string(MessageOf(migrator.Down(0).status())), HasSubstr("1 unpublished rows"));
  EXPECT_FALSE(connection_->Execute("SELECT lockstep.drop_outbox('shop.outbox')").ok());
  EXPECT_EQ(Count("true"), 1);
  EXPECT_TRUE(connection_->Execute("SELECT lockstep.drop_outbox('shop.outbox', true)").ok());
  ASSERT_TRUE(migrator.Down(0).ok());
  ASSERT_TRUE(migrator.Up().ok());
  EXPECT_TRUE(connection_->Execute("SELECT lockstep.create_outbox('shop.outbox')").ok());
}

TEST_P(EnqueueTest, StatesThatCanNotBeAreRefused) {
  Enqueue("k", 1);
  for (const char* change : {"attempts = -1", "dead_at = now()", "quarantined_at = now()"}) {
    const absl::Status changed =
        connection_->Execute(fmt::format("UPDATE shop.outbox_pending SET {}", change)).status();
    EXPECT_EQ(postgres::SqlState(changed), "23514") << change;
  }
}

TEST_P(EnqueueTest, TheRolesHaveTheLeastRights) {
  const std::string writer = db_.name() + "_writer";
  const std::string relay = db_.name() + "_relay";
  for (const std::string& role : {writer, relay}) db_.Run("CREATE ROLE " + role + " LOGIN");
  db_.Run(fmt::format("SELECT lockstep.grant_writer('shop.outbox', '{}')", writer));
  db_.Run(fmt::format("SELECT lockstep.grant_publisher('shop.outbox', '{}')", relay));
  const auto as_writer = postgres::Connection::Open({.url = db_.UrlAs(writer)});
  const auto as_relay = postgres::Connection::Open({.url = db_.UrlAs(relay)});
  ASSERT_TRUE(as_writer.ok() && as_relay.ok());
  constexpr char kEnqueue[] =
      "SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', 'T', 1, 'p')";
  EXPECT_TRUE((*as_writer)->Execute(kEnqueue).ok());
  EXPECT_TRUE((*as_writer)->Execute(std::string(kPlain) + "('t', 'item', 'k', 'T', 2, 'p')").ok());
  EXPECT_TRUE((*as_writer)
                  ->Execute("SELECT lockstep.enqueue_many('shop.outbox', '{t}', '{item}', '{k}', "
                            "'{T}', '{3}', '{p}')")
                  .ok());
  EXPECT_EQ(postgres::SqlState(
                (*as_writer)
                    ->Execute("INSERT INTO shop.outbox_pending (sequence, aggregate_hash, version) "
                              "VALUES (9, 9, 9)")
                    .status()),
            "42501");
  EXPECT_EQ(postgres::SqlState(
                (*as_writer)->Execute("UPDATE shop.outbox_pending SET attempts = 1").status()),
            "42501");
  EXPECT_EQ(postgres::SqlState((*as_writer)->Execute("DELETE FROM shop.outbox").status()), "42501");
  EXPECT_EQ(postgres::SqlState((*as_relay)->Execute(kEnqueue).status()), "42501");
  EXPECT_EQ(
      postgres::SqlState((*as_relay)->Execute("UPDATE shop.outbox SET payload = 'x'").status()),
      "42501");

  auto store = OutboxStore::Open(**as_relay, {"shop", "outbox"});
  ASSERT_TRUE(store.ok()) << store.status();
  ClaimRequest request;
  request.token = "00000000-0000-4000-8000-000000000001";
  request.owner = "relay";
  ClaimCursor cursor;
  auto claim = (*store)->ClaimRows(request, cursor);
  ASSERT_TRUE(claim.ok()) << claim.status();
  ASSERT_EQ(claim->rows.size(), 3u);
  claim->rows[0].attempts = 1;  // so that what is held behind it goes with its mark
  EXPECT_TRUE(ReleaseHeld(**as_relay, {"shop", "outbox"}, true).ok());
  EXPECT_TRUE((*store)->AuditLost({1}, "relay").ok());
  EXPECT_TRUE((*store)->MarkPublished(AsPublished(*claim)).ok());
  EXPECT_EQ(*DeletePublished(**as_relay, {"shop", "outbox"}, Millis(0), 10), 3);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_published"), 0);
  for (const std::string& role : {writer, relay}) {
    db_.Run(fmt::format("DROP OWNED BY {0}; DROP ROLE {0}", role));
  }
}

}  // namespace
}  // namespace lockstep::publisher
