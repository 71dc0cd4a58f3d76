#include <gmock/gmock.h>

#include <set>

#include "publisher/relay/relay.h"
#include "publisher/testing/relay_test.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"

namespace lockstep::publisher {
namespace {

TEST_F(RelayTest, ALongPublishKeepsItsLease) {
  bus_.HoldPublishes(true);
  RelayOptions options = Options();
  options.lock_ttl = Millis(1000);
  Enqueue("k", 1);
  const auto owner = StartOwner(options);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 1; }));
  // Renewed at least twice: the lease would have ended long ago.
  std::set<std::string> renewals;
  Claimer other = NewClaimer("other");
  other.request.lock_ttl = options.lock_ttl;
  while (renewals.size() < 4) {
    renewals.insert(Text("locked_at", 1));
    EXPECT_EQ(Names(other.Take()), "");
  }
  bus_.HoldPublishes(false);
  ASSERT_TRUE(AwaitPublished(1));
  owner->relay->Stop();
  EXPECT_EQ(owner->events.lost, 0);
  EXPECT_EQ(Count("published_at IS NOT NULL"), 1);
}

TEST_F(RelayTest, ALostLeaseIsCountedAuditedAndDropped) {
  bus_.HoldPublishes(true);
  Enqueue("k", 1);
  const auto owner = StartOwner();
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 1; }));
  db_.Run("UPDATE shop.outbox_status SET locked_at = now() - interval '1 hour'");
  Claimer other = NewClaimer("other");
  ASSERT_EQ(Names(other.Take()), "k:1");
  bus_.HoldPublishes(false);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.lost == 1; }));
  owner->relay->Stop();
  EXPECT_EQ(Count("published_at IS NULL AND locked_by = 'other'"), 1);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit WHERE action = "
                         "'outbox_flush_conflict' AND actor = 'a' AND detail->>'locked_by' = "
                         "'other'"),
            1);
}

// As a standby that lagged has it when it is promoted.
TEST_F(RelayTest, PublishedRowsThatAreGoneAfterAReconnectAreToldAndAudited) {
  const auto owner = StartOwner();
  Enqueue("k", 1);
  Enqueue("k", 2);
  ASSERT_TRUE(AwaitPublished(2));
  db_.Run("DELETE FROM shop.outbox WHERE version = 2");
  EndPublisherSessions();
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.gone == 1; }));
  EndPublisherSessions();
  Enqueue("z", 1);
  ASSERT_TRUE(AwaitPublished(3));
  owner->relay->Stop();
  EXPECT_EQ(owner->events.gone, 1) << "once";
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit WHERE action = "
                         "'outbox_flush_gone' AND detail->>'aggregate_id' = 'k' AND "
                         "detail->>'version' = '2'"),
            1);
}

// The database counts on from where it went back to: another row has the lost one's sequence.
TEST_F(RelayTest, PublishedRowsThatAreGoneAreKnownByTheirEvents) {
  const auto owner = StartOwner();
  Enqueue("k", 1);
  Enqueue("k", 2);
  ASSERT_TRUE(AwaitPublished(2));
  db_.Run(
      "DELETE FROM shop.outbox WHERE version = 2;"
      "ALTER TABLE shop.outbox ALTER COLUMN sequence RESTART WITH 2;"
      "SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', 'y', 'T', 1, 'p')");
  ASSERT_EQ(db_.QueryInt("SELECT sequence FROM shop.outbox WHERE aggregate_id = 'y'"), 2);
  EndPublisherSessions();
  EXPECT_TRUE(owner->events.Await([&] { return owner->events.gone == 1; }));
  owner->relay->Stop();
}

// What the cleaner has deleted is not gone.
TEST_F(RelayTest, RowsThatWerePublishedLongAgoAreNotMissed) {
  testing::FakeClock clock;
  clock_ = &clock;
  const auto owner = StartOwner();
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitPublished(1));
  ASSERT_TRUE(testing::Eventually([&] {
    clock.Advance(Millis(1));  // marks gather until they are due
    return Count("published_at IS NOT NULL") == 1;
  }));
  clock.Advance(Relay::Environment().remember);
  db_.Run("DELETE FROM shop.outbox");
  EndPublisherSessions();
  Enqueue("z", 1);
  ASSERT_TRUE(AwaitPublished(2));
  owner->relay->Stop();
  EXPECT_EQ(owner->events.gone, 0);
}

TEST_F(RelayTest, WhatWasClaimedBeforeAReconnectAndIsGoneIsNotSent) {
  bus_.HoldPublishes(true);
  const auto owner = StartOwner();
  Enqueue("k", 1);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 1; }));
  Enqueue("k", 2);
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 2; }));
  db_.Run("DELETE FROM shop.outbox WHERE version = 2");
  EndPublisherSessions();
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.database_errors > 0; }));
  bus_.HoldPublishes(false);
  Enqueue("z", 1);
  ASSERT_TRUE(AwaitPublished(2));
  owner->relay->Stop();
  EXPECT_EQ(Published(), "k:1 z:1");
}

TEST_F(RelayTest, ComesBackAfterItsSessionIsEnded) {
  const auto owner = StartOwner();
  for (int round = 1; round <= 3; ++round) {
    Enqueue("k", round);
    ASSERT_TRUE(AwaitPublished(round));
    EndPublisherSessions();
  }
  Enqueue("k", 4);
  ASSERT_TRUE(AwaitPublished(4));
  owner->relay->Stop();
  // What was published and not marked when the session ended may come twice, in order.
  std::set<std::string> versions;
  for (const auto& published : bus_.published()) {
    versions.insert(published.message.attributes.at("version"));
  }
  EXPECT_EQ(versions.size(), 4u);
  EXPECT_TRUE(owner->events.database_errors > 0);
}

TEST_F(RelayTest, RowsOfAShardThatLeavesAreGivenBack) {
  bus_.HoldPublishes(true);
  RelayOptions options = Options();
  options.batch_size = 1;
  options.poll_floor = options.poll_interval = Millis(30'000);  // it sleeps once that is marked
  EnqueueMany("k", 4);
  const auto owner = StartOwner(options, nullptr, [] { return 0.999; });
  ASSERT_TRUE(owner->events.Await([&] { return owner->events.claimed == 4; }));
  const int64_t change = owner->relay->SetShards({}, 1);
  ASSERT_TRUE(testing::Eventually([&] { return Count("lock_token IS NULL") >= 3; }));
  EXPECT_FALSE(owner->relay->LeftBehind(change));  // one is under way
  bus_.HoldPublishes(false);
  ASSERT_TRUE(testing::Eventually([&] { return owner->relay->LeftBehind(change); }));
  EXPECT_EQ(Published(), "k:1");
  EXPECT_EQ(Count("published_at IS NOT NULL"), 1);
}

}  // namespace
}  // namespace lockstep::publisher
