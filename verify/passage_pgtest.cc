// Until when a second look waits, and by what it is known that a group has caught up.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "postgres/migrator.h"
#include "projections/testing/test_group.h"
#include "publisher/backfill/snapshot_message.h"
#include "sql/migrations.h"
#include "tests/support/outbox_status.h"
#include "tests/support/test_database.h"
#include "verify/passage.h"
#include "verify/repair_arrival.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;

constexpr char kShopItems[] = R"(backfill: items
outbox: shop.outbox
topic: shop.snapshots
table: shop.items
key: [id]
aggregate_type: item
aggregate_id: id
version: version
event_type: Saved
payload:
  fields: {id: id}
)";
constexpr char kRepair[] = "11111111-1111-4111-8111-111111111111";

class PassageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        postgres::Migrator(*at_source_, "lockstep", sql::OutboxMigrations()).Up().status().ok());
    ASSERT_TRUE(projections::MigrateState(*at_replica_).ok());
    source_.Run(
        "SELECT lockstep.create_outbox('shop.outbox');"
        "CREATE TABLE shop.items (id text PRIMARY KEY, version int)");
    source_.Run(testing::StatusCanBeWritten("shop.outbox"));
    // A runner that works and has had nothing in hand for minutes to come.
    replica_.Run(
        "INSERT INTO lockstep_state.consumer_groups (group_name) VALUES ('feed');"
        "INSERT INTO lockstep_state.slots (group_name, slot, subscription) VALUES ('feed', 1, 's');"
        "INSERT INTO lockstep_state.instances (group_name, instance, epoch, lanes, seen_at, state,"
        " lag_ms) VALUES ('feed', 'one', 1, 1, now() + interval '4 minutes', 'running', 0)");
    const projections::TempFile file("items.yaml", kShopItems);
    auto loaded = publisher::LoadDeclaration(file.path());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    declaration_ = *std::move(loaded);
  }
  Passage Make(Passage::Source source, Millis grace = Millis(0)) {
    return {std::move(source),
            declaration_,
            *at_replica_,
            state::Schema("lockstep_state"),
            "feed",
            {.timeout = Millis(300),
             .grace = grace,
             .look = Millis(50),
             .waiting = [this](const std::string& what) { waited_for_ = what; }}};
  }
  // Empty = it has passed.
  std::string Await() {
    return std::string(Make({.connection = at_source_.get()}).Await({}).message());
  }
  void Enqueue(const std::string& type, const std::string& id) {
    source_.Run(fmt::format(
        "SELECT lockstep.enqueue('shop.outbox', 'shop.events', '{}', '{}', 'Saved', 1, '')", type,
        id));
  }
  void Publish() { source_.Run("UPDATE shop.outbox_status SET published_at = now()"); }
  // The group has the newest event, or that one.
  void Receive(const std::string& event) {
    replica_.Run(fmt::format(
        "INSERT INTO lockstep_state.inbox (generation, event_id) SELECT generation, '{}' FROM "
        "lockstep_state.slots",
        event));
  }
  std::string Newest() {
    return source_.Query("SELECT event_id FROM shop.outbox ORDER BY sequence DESC LIMIT 1")[0]
        .String("event_id");
  }

  testing::TestDatabase source_, replica_;
  std::unique_ptr<postgres::Connection> at_source_ = source_.Connect(),
                                        at_replica_ = replica_.Connect();
  publisher::Declaration declaration_;
  std::string waited_for_;
};

TEST_F(PassageTest, AnOutboxThatNeverHadAnEventHasNothingUnderWay) {
  EXPECT_EQ(Await(), "");
  Enqueue("other", "x");
  Publish();
  EXPECT_EQ(Await(), "");
}

TEST_F(PassageTest, WhatIsNotPublishedIsWaitedFor) {
  Enqueue("item", "a");
  EXPECT_THAT(Await(), HasSubstr("1 rows of shop.outbox have not been published within 300ms"));
  EXPECT_EQ(waited_for_, "waiting until 1 rows of shop.outbox are published");
  source_.Run("UPDATE shop.outbox_status SET dead_at = now(), available_at = 'infinity'");
  EXPECT_EQ(Await(), "");
}

// Nothing in hand says nothing: it may not have been delivered yet.
TEST_F(PassageTest, AGroupThatDoesNotMoveIsNotBelieved) {
  Enqueue("item", "a");
  Publish();
  EXPECT_THAT(Await(), HasSubstr("group feed does not move: within 300ms neither a heartbeat nor"));
  EXPECT_THAT(waited_for_, HasSubstr("something newer than the first look"));
  Receive(Newest());
  EXPECT_EQ(Await(), "");
  Enqueue("item", "b");
  Enqueue("other", "x");
  Publish();
  EXPECT_THAT(Await(), HasSubstr("does not move"));
}

TEST_F(PassageTest, AHeartbeatOrAnOffsetNewerThanTheFirstLookMoves) {
  Enqueue("item", "a");
  Publish();
  replica_.Run("UPDATE lockstep_state.instances SET heartbeat_at = now() - interval '1 s'");
  EXPECT_THAT(Await(), HasSubstr("does not move"));
  replica_.Run("UPDATE lockstep_state.instances SET heartbeat_at = now() + interval '1 min'");
  EXPECT_EQ(Await(), "");
  replica_.Run(
      "UPDATE lockstep_state.instances SET heartbeat_at = NULL;"
      "INSERT INTO lockstep_state.offsets (group_name, instance, lane, subscription, message_id,"
      " publish_time, epoch) VALUES ('feed', 'one', 0, 's', '7', now() - interval '1 s', 1)");
  EXPECT_THAT(Await(), HasSubstr("does not move"));
  replica_.Run("UPDATE lockstep_state.offsets SET publish_time = now() + interval '1 min'");
  EXPECT_EQ(Await(), "");
}

TEST_F(PassageTest, WhatIsOlderAndInHandIsWaitedFor) {
  replica_.Run("UPDATE lockstep_state.instances SET lag_ms = 2 * 3600 * 1000");
  EXPECT_THAT(Await(), HasSubstr("has not caught up within 300ms"));
  EXPECT_THAT(waited_for_, HasSubstr("until the group has passed the first look: "));
}

// The runner's report is minutes ahead: the database's clock has jumped.
TEST_F(PassageTest, AClockThatJumpsDoesNotShortenTheGrace) {
  const auto passed = Make({.connection = at_source_.get()}, Millis(240'000)).Await({});
  EXPECT_THAT(std::string(passed.message()), HasSubstr("has not caught up within 300ms"));
}

TEST_F(PassageTest, BothSubscriptionsMustBeConnected) {
  replica_.Run("UPDATE lockstep_state.instances SET snapshots_open = false");
  EXPECT_THAT(Await(), HasSubstr("one is not connected to Pub/Sub"));
  EXPECT_EQ(waited_for_, "waiting until a runner of the group is connected to Pub/Sub");
  replica_.Run("UPDATE lockstep_state.instances SET snapshots_open = true, state = 'no stream'");
  EXPECT_THAT(Await(), HasSubstr("one is not connected to Pub/Sub"));
  replica_.Run("DELETE FROM lockstep_state.instances");
  EXPECT_THAT(Await(), HasSubstr("no runner of group feed is working"));
}

TEST_F(PassageTest, OfAFileTheNewestEventThatItNamesCounts) {
  const auto await = [&](Passage::Source source) {
    return std::string(Make(std::move(source)).Await({}).message());
  };
  EXPECT_EQ(await({.silent = true}), "");
  EXPECT_THAT(await({}), HasSubstr("does not move"));
  Enqueue("item", "a");
  Publish();
  const auto newest = AwaitPublished(*at_source_, declaration_, {.timeout = Millis(0)},
                                     Clock::System().Steady(), {});
  ASSERT_TRUE(newest.ok() && *newest) << newest.status();
  EXPECT_EQ((*newest)->aggregate_key, "item/a");
  EXPECT_THAT(await({.newest = *newest}), HasSubstr("does not move"));
  Receive((*newest)->event_id);
  EXPECT_EQ(await({.newest = *newest}), "");
}

TEST_F(PassageTest, ARepairIsWaitedForMessageByMessage) {
  source_.Run("INSERT INTO shop.items VALUES ('a', 3), ('b', 4), ('c', 5)");
  const RepairPlan plan{.keys = {{"a"}, {"b"}, {"c"}},
                        .ghosts = {{.key = {"g"}, .aggregate_id = "g", .version = 7},
                                   {.key = {"h"}, .aggregate_id = "h", .version = 2}}};
  auto arrival = RepairArrival::Expect(declaration_, *at_source_, plan);
  ASSERT_TRUE(arrival.ok()) << arrival.status();
  const auto await = [&] {
    Passage passage = Make({.connection = at_source_.get()});
    return std::string(arrival->Await(kRepair, passage, {}).message());
  };
  EXPECT_THAT(await(), HasSubstr("5 messages of the repair have not reached group feed"));
  Receive(publisher::SnapshotEventId(kRepair, "item/a", 3));
  Receive(publisher::SnapshotEventId(kRepair, "item/g", 7));
  EXPECT_THAT(await(), HasSubstr("3 messages of the repair"));
  EXPECT_EQ(waited_for_, "waiting until the group has 3 messages of the repair");
  // What has changed or gone since comes by its event; a ghost that came back was not sent away.
  source_.Run(
      "UPDATE shop.items SET version = 5 WHERE id = 'b'; DELETE FROM shop.items WHERE id = 'c';"
      "INSERT INTO shop.items VALUES ('h', 3)");
  EXPECT_EQ(await(), "");
}

}  // namespace
}  // namespace lockstep::verify
