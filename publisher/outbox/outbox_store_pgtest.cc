#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "publisher/outbox/outbox_rows.h"
#include "publisher/outbox/outbox_store.h"
#include "publisher/testing/outbox_test.h"

namespace lockstep::publisher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const postgres::QualifiedName kOutbox{"shop", "outbox"};

// Whatever a claim does, it does in both its forms, for any number of rows and for a few, and with
// partitions as without.
class OutboxStoreTest : public OutboxTest,
                        public ::testing::WithParamInterface<std::tuple<bool, bool>> {
 protected:
  OutboxStoreTest() : OutboxTest(/*partitioned=*/std::get<1>(GetParam())) {
    a_.request.few = b_.request.few = std::get<0>(GetParam());
  }

  // As if `sequence` had been leased longer ago than any lease lasts.
  void Expire(int64_t sequence) {
    db_.Query(
        "UPDATE shop.outbox_status SET locked_at = now() - interval '1 hour' WHERE sequence = $1",
        postgres::Params(sequence));
  }

  Claimer a_ = NewClaimer("a");
  Claimer b_ = NewClaimer("b");
};

INSTANTIATE_TEST_SUITE_P(Claiming, OutboxStoreTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& form) {
                           return std::string(std::get<0>(form.param) ? "AFew" : "Any") +
                                  (std::get<1>(form.param) ? "Partitioned" : "");
                         });

TEST_P(OutboxStoreTest, ClaimsMarksAndIsDone) {
  Enqueue("k", 1);
  const Claim claim = a_.Take();
  ASSERT_EQ(Names(claim), "k:1");
  EXPECT_TRUE(claim.rows[0].first_claim);
  EXPECT_EQ(claim.rows[0].payload, "payload");
  EXPECT_EQ(claim.rows[0].attempts, 0);
  EXPECT_EQ(Text("locked_by", 1), "a");
  EXPECT_THAT(*a_.store->MarkPublished(AsPublished(claim)), ElementsAre(1));
  EXPECT_EQ(Count("published_at IS NOT NULL AND message_id = 'm' AND lock_token IS NULL"), 1);
  EXPECT_EQ(Names(a_.Take()), "");
}

TEST_P(OutboxStoreTest, TwoClaimersNeverHoldOneRow) {
  for (int key = 0; key < 400; ++key) Enqueue(fmt::format("k{}", key), 1);
  std::mutex mu;
  std::multiset<int64_t> claimed;
  const auto work = [&](Claimer& claimer) {
    claimer.request.rows = 7;
    for (Claim claim = claimer.Take(); claim.candidates > 0; claim = claimer.Take()) {
      std::scoped_lock lock(mu);
      for (const OutboxRow& row : claim.rows) claimed.insert(row.sequence);
    }
  };
  std::thread other([&] { work(b_); });
  work(a_);
  other.join();
  EXPECT_EQ(claimed.size(), 400u);
  EXPECT_EQ(std::set(claimed.begin(), claimed.end()).size(), 400u);
}

TEST_P(OutboxStoreTest, TwoClaimersOnOneAggregateDoNotPassEachOther) {
  EnqueueMany("k", 4);
  a_.request.rows = 2;
  EXPECT_EQ(Names(a_.Take()), "k:1 k:2");
  // 3 and 4 are free, but what is before them is another's.
  EXPECT_EQ(Names(b_.Take()), "");
}

TEST_P(OutboxStoreTest, ARowLockedByAClaimUnderWayBlocksItsSuccessors) {
  EnqueueMany("k", 2);
  auto under_way = a_.connection->Begin();
  ASSERT_TRUE(under_way.ok());
  ASSERT_TRUE(
      under_way->Execute("SELECT 1 FROM shop.outbox_pending WHERE version = 1 FOR UPDATE").ok());
  EXPECT_EQ(Names(b_.Take()), "");
  ASSERT_TRUE(under_way->Rollback().ok());
  EXPECT_EQ(Names(b_.Take()), "k:1 k:2");
}

TEST_P(OutboxStoreTest, ANewOwnerWaitsForTheDeadOnesLeaseOnAnEarlierVersion) {
  const int64_t first = Enqueue("k", 1);
  ASSERT_EQ(Names(a_.Take()), "k:1");
  a_.connection.reset();  // dies
  Enqueue("k", 2);
  Enqueue("other", 1);
  EXPECT_EQ(Names(b_.Take()), "other:1");
  // Its successor is out of the way until the lease ends, not for ever.
  EXPECT_EQ(Count("version = 2 AND available_at BETWEEN now() + interval '55s' "
                  "AND now() + interval '61s'"),
            1);
  Expire(first);
  db_.Run("UPDATE shop.outbox_status SET available_at = now() WHERE version = 2");
  EXPECT_EQ(Names(b_.Take()), "k:1 k:2");
}

TEST_P(OutboxStoreTest, RowsInTheOwnersHandsDoNotBlockItsNextClaim) {
  EnqueueMany("k", 4);
  a_.request.rows = 2;
  const Claim first = a_.Take();
  ASSERT_EQ(Names(first), "k:1 k:2");
  a_.request.live_tokens = {first.rows[0].lock_token};
  EXPECT_EQ(Names(a_.Take()), "k:3 k:4");
}

TEST_P(OutboxStoreTest, TakesAllThatIsDueUpToWhatWasAskedFor) {
  EnqueueMany("k", 30);
  a_.request.rows = 20;
  ClaimCursor cursor;
  const Claim first = a_.Take(&cursor);
  EXPECT_EQ(first.rows.size(), 20u);
  EXPECT_EQ(first.candidates, 20);
  EXPECT_EQ(cursor.sequence, 20);
  for (size_t i = 0; i < first.rows.size(); ++i) {
    EXPECT_EQ(first.rows[i].version, static_cast<int64_t>(i) + 1);
  }
  a_.request.live_tokens = {first.rows.front().lock_token, first.rows.back().lock_token};
  const Claim second = a_.Take(&cursor);
  EXPECT_EQ(second.rows.size(), 10u);
  EXPECT_EQ(second.candidates, 10);
  EXPECT_EQ(Count("lock_token IS NOT NULL"), 30);
}

TEST_P(OutboxStoreTest, WhatIsBlockedIsPushedOutOfTheWayWhileTheOthersAreTaken) {
  Enqueue("k", 1);
  ASSERT_EQ(Names(a_.Take()), "k:1");
  Enqueue("free", 1);
  Enqueue("k", 2);
  Enqueue("free", 2);
  Enqueue("k", 3);
  const Claim claim = b_.Take();
  EXPECT_EQ(Names(claim), "free:1 free:2");
  EXPECT_FALSE(claim.a_second_ago.empty());
  EXPECT_EQ(Count("aggregate_id = 'k' AND available_at > now() + interval '50s'"), 2);
}

TEST_P(OutboxStoreTest, AnExpiredLeaseIsClaimedAgainAndTheLateAckIsLost) {
  const int64_t row = Enqueue("k", 1);
  const Claim late = a_.Take();
  EXPECT_EQ(Names(b_.Take()), "");
  Expire(row);
  const Claim taken = b_.Take();
  ASSERT_EQ(Names(taken), "k:1");
  EXPECT_FALSE(taken.rows[0].first_claim);
  EXPECT_THAT(*a_.store->MarkPublished(AsPublished(late)), IsEmpty());
  EXPECT_EQ(Count("published_at IS NULL AND locked_by = 'b'"), 1);
  EXPECT_THAT(*a_.store->MarkFailed({AsFailure(late.rows[0], Millis(0))}), IsEmpty());
  EXPECT_EQ(Text("attempts", row), "0");
  EXPECT_THAT(*b_.store->MarkPublished(AsPublished(taken)), ElementsAre(row));
}

TEST_P(OutboxStoreTest, ALostLeaseLeavesTheRowsPresentStateInTheAudit) {
  const int64_t row = Enqueue("k", 1);
  a_.Take();
  ASSERT_TRUE(a_.store->AuditLost({row}, "b").ok());
  const auto audit = db_.Query(
      "SELECT action, actor, outbox, detail->>'locked_by', detail ? 'payload' "
      "FROM lockstep.outbox_audit");
  ASSERT_EQ(audit.rows(), 1);
  EXPECT_EQ(audit.Text(0, 0), "outbox_flush_conflict");
  EXPECT_EQ(audit.Text(0, 1), "b");
  EXPECT_EQ(audit.Text(0, 2), "shop.outbox");
  EXPECT_EQ(audit.Text(0, 3), "a");
  EXPECT_FALSE(audit.Bool(0, 4));
}

TEST_P(OutboxStoreTest, RenewingKeepsALease) {
  const int64_t row = Enqueue("k", 1);
  const Claim claim = a_.Take();
  Expire(row);
  EXPECT_THAT(*a_.store->Renew({Shared(claim.rows[0])}), ElementsAre(row));
  EXPECT_EQ(Names(b_.Take()), "");
}

TEST_P(OutboxStoreTest, AClaimSpendsNoAttempt) {
  const int64_t row = Enqueue("k", 1);
  for (int i = 0; i < 3; ++i) {
    a_.Take();
    Expire(row);
  }
  EXPECT_EQ(Text("attempts", row), "0");
}

TEST_P(OutboxStoreTest, ARowThatWaitsHoldsItsSuccessorsUntilItIsPublished) {
  EnqueueMany("k", 3);
  Enqueue("other", 1);
  const Claim claim = a_.Take();
  ASSERT_EQ(Names(claim), "k:1 k:2 k:3 other:1");
  const RowFailure held{.row = Shared(claim.rows[1]), .delay = std::nullopt};
  const RowFailure free{.row = Shared(claim.rows[2])};
  ASSERT_TRUE(a_.store->MarkFailed({AsFailure(claim.rows[0], Millis(60'000)), held, free}).ok());
  // The third is free to go but for the first: the claim holds it.
  EXPECT_EQ(Names(b_.Take()), "");
  EXPECT_EQ(Count("available_at = 'infinity'"), 2);
  db_.Run("UPDATE shop.outbox_status SET available_at = now() WHERE sequence = 1");
  const Claim again = a_.Take();
  ASSERT_EQ(Names(again), "k:1");
  EXPECT_EQ(again.rows[0].attempts, 1);
  ASSERT_TRUE(a_.store->MarkPublished(AsPublished(again)).ok());
  EXPECT_EQ(Names(a_.Take()), "k:2 k:3");
}

TEST_P(OutboxStoreTest, ADeadRowHoldsItsAggregateAndNoOther) {
  EnqueueMany("k", 2);
  Enqueue({.key = "k", .version = 1, .tenant = "t"});  // another aggregate of the same key
  a_.request.rows = 1;
  const Claim claim = a_.Take();
  ASSERT_TRUE(a_.store->MarkFailed({AsFailure(claim.rows[0], Millis(0), true)}).ok());
  EXPECT_EQ(Count("dead_at IS NOT NULL AND attempts = 1 AND error_code = 'UNKNOWN.INTERNAL'"), 1);
  b_.request.rows = 10;
  const Claim rest = b_.Take();
  ASSERT_EQ(rest.rows.size(), 1u);
  EXPECT_EQ(rest.rows[0].tenant_id, "t");
}

TEST_P(OutboxStoreTest, ADeadRowIsPassedUnderSkip) {
  EnqueueMany("k", 2);
  a_.request.rows = 1;
  a_.request.dead_blocks = false;
  RowFailure skipped = AsFailure(a_.Take().rows[0], Millis(0), true);
  skipped.frees_followers = true;
  ASSERT_TRUE(a_.store->MarkFailed({skipped}).ok());
  EXPECT_EQ(Names(a_.Take()), "k:2");
}

TEST_P(OutboxStoreTest, AReplayedRowStartsOverWithItsSuccessors) {
  EnqueueMany("k", 3);
  a_.request.rows = 1;
  const Claim claim = a_.Take();
  ASSERT_TRUE(a_.store->MarkFailed({AsFailure(claim.rows[0], Millis(0), true)}).ok());
  a_.request.rows = 10;
  EXPECT_EQ(Names(a_.Take()), "");  // and pushes the successors out
  EXPECT_EQ(db_.QueryInt("SELECT lockstep.replay('shop.outbox', '{1,2}', 'ann', 'mended')"), 1);
  EXPECT_EQ(Count("attempts = 0 AND last_error IS NULL AND error_code IS NULL AND dead_at IS NULL"),
            3);
  EXPECT_EQ(Names(a_.Take()), "k:1 k:2 k:3");
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit WHERE action = 'replay' AND "
                         "actor = 'ann' AND note = 'mended' AND sequence = 1"),
            1);
}

TEST_P(OutboxStoreTest, QuarantineKeepsARowFromEveryAutomaticPathUntilReleased) {
  EnqueueMany("k", 2);
  EXPECT_EQ(db_.QueryInt("SELECT lockstep.quarantine('shop.outbox', '{1}', 'ann', 'odd')"), 1);
  EXPECT_EQ(Names(a_.Take()), "");
  EXPECT_EQ(db_.QueryInt("SELECT lockstep.replay('shop.outbox', '{1}', 'ann')"), 0);
  EXPECT_EQ(*ReleaseHeld(*a_.connection, kOutbox, true), 0);
  EXPECT_EQ(*DeleteDead(*a_.connection, kOutbox, Millis(0), 10), 0);
  EXPECT_EQ(db_.QueryInt("SELECT lockstep.release('shop.outbox', '{1}', 'ann')"), 1);
  EXPECT_EQ(Names(a_.Take()), "k:1 k:2");
}

TEST_P(OutboxStoreTest, QuarantineTakesALeasedRowFromItsHolder) {
  Enqueue("k", 1);
  const Claim claim = a_.Take();
  EXPECT_EQ(db_.QueryInt("SELECT lockstep.quarantine('shop.outbox', '{1}', 'ann', 'odd')"), 1);
  EXPECT_THAT(*a_.store->MarkPublished(AsPublished(claim)), IsEmpty());
}

TEST_P(OutboxStoreTest, RowsHeldBehindADeletedBlockerAreFound) {
  EnqueueMany("k", 3);
  a_.request.rows = 1;
  const Claim claim = a_.Take();
  ASSERT_TRUE(a_.store->MarkFailed({AsFailure(claim.rows[0], Millis(0), true)}).ok());
  a_.request.rows = 10;
  EXPECT_EQ(Names(a_.Take()), "");
  EXPECT_EQ(*ReleaseHeld(*a_.connection, kOutbox, true), 0);
  db_.Run("DELETE FROM shop.outbox WHERE sequence = 1");
  EXPECT_EQ(Names(a_.Take()), "");
  EXPECT_EQ(*ReleaseHeld(*a_.connection, kOutbox, true), 2);
  EXPECT_EQ(Names(a_.Take()), "k:2 k:3");
}

TEST_P(OutboxStoreTest, ASlowTransactionWithALowerSequenceIsStillFound) {
  const auto slow = db_.Connect();
  auto transaction = slow->Begin();
  ASSERT_TRUE(transaction.ok());
  ASSERT_TRUE(transaction
                  ->Execute("SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', 'slow', "
                            "'T', 1, 'p')")
                  .ok());
  for (int key = 0; key < 5; ++key) Enqueue(fmt::format("k{}", key), 1);
  a_.request.rows = 2;
  ClaimCursor cursor;
  EXPECT_EQ(Names(a_.Take(&cursor)), "k0:1 k1:1");
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_EQ(Names(a_.Take(&cursor)), "k2:1 k3:1");  // the cursor is past it
  EXPECT_EQ(Names(a_.Take()), "slow:1 k4:1");       // a look from the start finds it
}

TEST_P(OutboxStoreTest, ShardsPartTheKeys) {
  for (int key = 0; key < 50; ++key) Enqueue(fmt::format("k{}", key), 1);
  a_.request.shard_count = b_.request.shard_count = 4;
  a_.request.shards = {0, 2};
  b_.request.shards = {1, 3};
  const Claim first = a_.Take();
  const Claim second = b_.Take();
  EXPECT_EQ(first.rows.size() + second.rows.size(), 50u);
  EXPECT_GT(first.rows.size(), 5u);
  EXPECT_GT(second.rows.size(), 5u);
  for (const OutboxRow& row : first.rows) EXPECT_EQ(row.shard % 2, 0);
}

TEST_P(OutboxStoreTest, PausedTopicsAreLeftAlone) {
  Enqueue({.key = "a", .topic = "down"});
  Enqueue({.key = "b", .topic = "up"});
  a_.request.paused_topics = {"down"};
  EXPECT_EQ(Names(a_.Take()), "b:1");
}

TEST_P(OutboxStoreTest, TheCleanerTakesOldPublishedRowsInBoundedBatches) {
  EnqueueMany("k", 10);
  Claim claim = a_.Take();
  claim.rows.resize(8);
  ASSERT_TRUE(a_.store->MarkPublished(AsPublished(claim)).ok());
  db_.Run(
      "UPDATE shop.outbox_status SET published_at = now() - interval '8 days' WHERE version <= 5");
  const Millis week{168 * 3'600'000LL};
  EXPECT_EQ(*DeletePublished(*a_.connection, kOutbox, week, 3), 3);
  EXPECT_EQ(Count("version <= 3"), 0);  // the oldest first
  EXPECT_EQ(*DeletePublished(*a_.connection, kOutbox, week, 3), 2);
  EXPECT_EQ(*DeletePublished(*a_.connection, kOutbox, week, 3), 0);
  EXPECT_EQ(Count("true"), 5);
}

TEST_P(OutboxStoreTest, TheCleanerTakesDeadRowsOnlyWhenAsked) {
  Enqueue("k", 1);
  Enqueue("l", 1);
  const Claim claim = a_.Take();
  ASSERT_TRUE(a_.store->MarkFailed({AsFailure(claim.rows[0], Millis(0), true)}).ok());
  db_.Run(
      "UPDATE shop.outbox_status SET dead_at = now() - interval '1 day' WHERE dead_at IS NOT NULL");
  EXPECT_EQ(*DeletePublished(*a_.connection, kOutbox, Millis(0), 10), 0);
  EXPECT_EQ(Count("true"), 2);
  EXPECT_EQ(*DeleteDead(*a_.connection, kOutbox, Millis(48 * 3'600'000), 10), 0);
  EXPECT_EQ(*DeleteDead(*a_.connection, kOutbox, Millis(3'600'000), 10), 1);
  EXPECT_EQ(Count("true"), 1);
}

TEST_P(OutboxStoreTest, SaysWhenSomethingFallsDue) {
  EXPECT_EQ(*a_.store->NextDue(a_.request), std::nullopt);
  Enqueue("k", 1);
  Enqueue("l", 1);
  const Claim claim = a_.Take();
  auto due = *a_.store->NextDue(a_.request);  // the leases
  ASSERT_TRUE(due.has_value());
  EXPECT_GT(*due, Millis(50'000));
  ASSERT_TRUE(a_.store->MarkFailed({AsFailure(claim.rows[0], Millis(20'000))}).ok());
  due = *a_.store->NextDue(a_.request);
  ASSERT_TRUE(due.has_value());
  EXPECT_LE(*due, Millis(20'001));
  EXPECT_GT(*due, Millis(10'000));
}

TEST_P(OutboxStoreTest, WakeLocksAreAllOrNone) {
  ASSERT_TRUE(*a_.store->TryWakeLocks({0, 1}));
  EXPECT_FALSE(*b_.store->TryWakeLocks({1, 2}));
  ASSERT_TRUE(a_.store->WakeUnlock({0, 1}).ok());
  EXPECT_TRUE(*b_.store->TryWakeLocks({1, 2}));
  EXPECT_TRUE(*a_.store->TryWakeLocks({0}));
}

// Then the leases of the few, of which nobody would know, would block their keys until they end.
TEST_F(OutboxTest, AFewThatWereTakenAreNotLostWithTheClaimOfTheRest) {
  Enqueue("k", 1);
  ASSERT_EQ(Names(NewClaimer("other").Take()), "k:1");
  Enqueue("k", 2);  // blocked: the other statement has to look, and is made to fail
  Enqueue("free", 1);
  db_.Run(
      "CREATE FUNCTION shop.refuse() RETURNS trigger LANGUAGE plpgsql AS "
      "$$ BEGIN RAISE EXCEPTION 'no'; END $$; "
      "CREATE TRIGGER refuse BEFORE UPDATE ON shop.outbox_pending FOR EACH ROW "
      "WHEN (NEW.available_at <> OLD.available_at) EXECUTE FUNCTION shop.refuse()");
  Claimer claimer = NewClaimer("this");
  claimer.request.few = true;
  const Claim claim = claimer.Take();
  EXPECT_EQ(Names(claim), "free:1");
  EXPECT_EQ(claim.candidates, claimer.request.rows);  // there may be more: it looks again
}

// The claim of the rest may have been committed and its answer lost: what it leased is in nobody's
// hands, and its successors must not go ahead because the lease of the few is alive.
TEST_F(OutboxTest, WhatIsTakenBesideAFewHasALeaseOfItsOwn) {
  EnqueueMany("many", 8);
  EnqueueMany("k", 1);
  Claimer claimer = NewClaimer("this");
  claimer.request.few = true;
  const Claim claim = claimer.Take();
  ASSERT_EQ(claim.rows.size(), 9u);
  ASSERT_EQ(claim.rows[8].aggregate_id, "k");
  EXPECT_NE(claim.rows[8].lock_token, claim.rows[0].lock_token);
  claimer.request.live_tokens = {claim.rows[0].lock_token};
  Enqueue("k", 2);
  EXPECT_EQ(Names(claimer.Take()), "");
}

TEST_F(OutboxTest, AFewPassADeadRowUnderSkip) {
  EnqueueMany("k", 2);
  Claimer claimer = NewClaimer("this");
  claimer.request.few = true;
  claimer.request.dead_blocks = false;
  db_.Run(
      "UPDATE shop.outbox_status SET dead_at = now(), available_at = 'infinity' WHERE version = 1");
  EXPECT_EQ(Names(claimer.Take()), "k:2");
}

}  // namespace
}  // namespace lockstep::publisher
