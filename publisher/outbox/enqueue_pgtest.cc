// lockstep.enqueue and the functions around it, as any language calls them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "platform/status.h"
#include "postgres/migrator.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outbox_rows.h"
#include "publisher/testing/outbox_test.h"
#include "sql/migrations.h"
#include "tests/support/eventually.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;

class EnqueueTest : public OutboxTest {
 protected:
  // The error of lockstep.enqueue('shop.outbox', …), or OK.
  absl::Status Try(const std::string& arguments) {
    return connection_->Execute("SELECT lockstep.enqueue('shop.outbox', " + arguments + ")")
        .status();
  }

  std::unique_ptr<postgres::Connection> connection_ = db_.Connect();
};

TEST_F(EnqueueTest, RollingBackLeavesNothing) {
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

TEST_F(EnqueueTest, ARepeatedEventIdAnswersTheFirstSequence) {
  const std::string id = "event_id => '00000000-0000-4000-8000-000000000001'";
  ASSERT_TRUE(Try("'t', 'item', 'k', 'T', 1, 'p', " + id).ok());
  Enqueue("k", 2);
  const auto again = connection_->Execute(
      "SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'k', 'T', 1, 'p', " + id + ")");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->Int(0, 0), 1);
  EXPECT_EQ(Count("true"), 2);
}

TEST_F(EnqueueTest, RefusesAVersionThatIsNotAboveTheHighest) {
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

TEST_F(EnqueueTest, ANullTenantDoesNotSwitchTheVersionConstraintOff) {
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

TEST_F(EnqueueTest, RefusesWhatPubsubWouldRefuse) {
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
      {"'t', 'item', 'k', 'T', 0, 'p'", "versions start at 1"},
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

TEST_F(EnqueueTest, RefusesWhatNoReaderKnows) {
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
TEST_F(EnqueueTest, ARepeatedEventIsRecognisedWhicheverIndexMeetsIt) {
  db_.Run(R"sql(
    CREATE FUNCTION shop.wait(event_type text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
      IF current_setting('application_name') = 'second' THEN PERFORM pg_advisory_xact_lock(77); END IF;
      RETURN event_type;
    END $$;
    ALTER TABLE shop.outbox DROP CONSTRAINT outbox_event_id_key,
      DROP CONSTRAINT outbox_tenant_id_aggregate_type_aggregate_id_version_key;
    CREATE INDEX ON shop.outbox (shop.wait(event_type));
    ALTER TABLE shop.outbox ADD UNIQUE (event_id),
      ADD UNIQUE NULLS NOT DISTINCT (tenant_id, aggregate_type, aggregate_id, version))sql");
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

TEST_F(EnqueueTest, MakesTheTransactionDurableWhateverTheSourceSays) {
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

TEST_F(EnqueueTest, GeneratesTimeOrderedIds) {
  for (int i = 1; i <= 3; ++i) {
    Enqueue("k", i);
    db_.Query("SELECT pg_sleep(0.002)");  // the ids' clock counts milliseconds
  }
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM (SELECT event_id < lead(event_id) OVER (ORDER BY "
                         "sequence) AS up FROM shop.outbox) s WHERE up"),
            2);
  EXPECT_EQ(Count("substr(event_id::text, 15, 1) = '7'"), 3);
}

TEST_F(EnqueueTest, CarriesTraceContextAndTime) {
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

TEST_F(EnqueueTest, AnOutboxMayHaveAnyName) {
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

TEST_F(EnqueueTest, MakingAnOutboxTwiceIsHarmlessAndATableIsNotTaken) {
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

TEST_F(EnqueueTest, AnOutboxWithUnpublishedRowsIsNotDroppedUnlessForced) {
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

TEST_F(EnqueueTest, StatesThatCanNotBeAreRefused) {
  Enqueue("k", 1);
  for (const char* change : {"attempts = -1", "lock_token = gen_random_uuid()", "message_id = 'm'",
                             "dead_at = now()", "quarantined_at = now()",
                             "published_at = now(), dead_at = now(), available_at = 'infinity'",
                             "published_at = now(), lock_token = gen_random_uuid(), locked_by = "
                             "'a', locked_at = now()"}) {
    const absl::Status changed =
        connection_->Execute(fmt::format("UPDATE shop.outbox SET {}", change)).status();
    EXPECT_EQ(postgres::SqlState(changed), "23514") << change;
  }
}

TEST_F(EnqueueTest, TheRolesHaveTheLeastRights) {
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
  EXPECT_EQ(
      postgres::SqlState((*as_writer)->Execute("UPDATE shop.outbox SET attempts = 1").status()),
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
  ASSERT_EQ(claim->rows.size(), 1u);
  claim->rows[0].attempts = 1;  // so that what is held behind it goes with its mark
  EXPECT_TRUE(ReleaseHeld(**as_relay, {"shop", "outbox"}, true).ok());
  EXPECT_TRUE((*store)->AuditLost({1}, "relay").ok());
  EXPECT_TRUE((*store)->MarkPublished(AsPublished(*claim)).ok());
  EXPECT_EQ(*DeletePublished(**as_relay, {"shop", "outbox"}, Millis(0), 10), 1);
  for (const std::string& role : {writer, relay}) {
    db_.Run(fmt::format("DROP OWNED BY {0}; DROP ROLE {0}", role));
  }
}

}  // namespace
}  // namespace lockstep::publisher
