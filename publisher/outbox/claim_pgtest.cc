// What a claim meets while it runs.
#include <gtest/gtest.h>

#include <future>

#include "publisher/testing/outbox_test.h"
#include "tests/support/eventually.h"

namespace lockstep::publisher {
namespace {

// A claim that stands still at the key "gate", after its snapshot and before its later rows.
class ClaimAtTheGate : public OutboxTest, public ::testing::WithParamInterface<bool> {
 protected:
  ClaimAtTheGate() {
    db_.Run(
        "CREATE OR REPLACE FUNCTION lockstep.shard_of_hash(aggregate_hash bigint, shards int) "
        "RETURNS int LANGUAGE plpgsql VOLATILE AS $$ BEGIN "
        "IF shards = 2 AND aggregate_hash = lockstep.aggregate_hash('gate', 'item', NULL) THEN "
        "PERFORM "
        "pg_advisory_xact_lock_shared(4711); END IF; RETURN 0; END $$");
  }
};

// Somebody touches a row meanwhile: it is where it was not when the claim looked.
TEST_P(ClaimAtTheGate, TakesNoVersionWithoutItsPredecessor) {
  Enqueue("gate", 1);
  EnqueueMany("k", 2);
  db_.Run("SELECT pg_advisory_lock(4711)");
  Claimer claimer = NewClaimer("a");
  claimer.request.shard_count = 2;
  claimer.request.few = GetParam();
  auto claim = std::async(std::launch::async, [&] { return claimer.Take(); });
  ASSERT_TRUE(testing::Eventually([&] {
    return db_.QueryInt(
               "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT "
               "granted") == 1;
  }));
  db_.Run(
      "UPDATE shop.outbox_status SET last_error = 'touched' WHERE aggregate_id = 'k' AND version = "
      "1");
  db_.Run("SELECT pg_advisory_unlock(4711)");
  const Claim taken = claim.get();
  EXPECT_EQ(Names(taken), "gate:1 k:1 k:2");
  // By one statement: what another one brings, it may just as well not bring.
  for (const OutboxRow& row : taken.rows) EXPECT_EQ(row.lock_token, claimer.request.token);
}

// Another claim takes the rows meanwhile, and is over before this one comes to them: they are
// locked by nobody any more, and its lease is younger than what this one sees.
TEST_P(ClaimAtTheGate, TakesNoRowOfAClaimThatItDidNotSee) {
  Enqueue("gate", 1);
  EnqueueMany("k", 2);
  db_.Run("SELECT pg_advisory_lock(4711)");
  Claimer claimer = NewClaimer("a");
  claimer.request.shard_count = 2;
  claimer.request.few = GetParam();
  auto claim = std::async(std::launch::async, [&] { return claimer.Take(); });
  ASSERT_TRUE(testing::Eventually([&] {
    return db_.QueryInt(
               "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT "
               "granted") == 1;
  }));
  Claimer other = NewClaimer("b");
  EXPECT_EQ(Names(other.Take()), "gate:1 k:1 k:2");
  db_.Run("SELECT pg_advisory_unlock(4711)");
  EXPECT_EQ(Names(claim.get()), "");
  EXPECT_EQ(Count("locked_by = 'b'"), 3);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_leases"), 1);
}

// And it takes none behind such a row either.
TEST_P(ClaimAtTheGate, TakesNoRowBehindAClaimThatItDidNotSee) {
  Enqueue("gate", 1);
  EnqueueMany("k", 3);
  db_.Run("SELECT pg_advisory_lock(4711)");
  Claimer claimer = NewClaimer("a");
  claimer.request.shard_count = 2;
  claimer.request.few = GetParam();
  auto claim = std::async(std::launch::async, [&] { return claimer.Take(); });
  ASSERT_TRUE(testing::Eventually([&] {
    return db_.QueryInt(
               "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT "
               "granted") == 1;
  }));
  Claimer other = NewClaimer("b");
  other.request.rows = 2;
  EXPECT_EQ(Names(other.Take()), "gate:1 k:1");
  db_.Run("SELECT pg_advisory_unlock(4711)");
  EXPECT_EQ(Names(claim.get()), "");
}
INSTANTIATE_TEST_SUITE_P(Few, ClaimAtTheGate, ::testing::Bool());

using OutboxAudit = OutboxTest;

// docs/errors.md: how a row ended that did not simply pass.
TEST_F(OutboxAudit, HasDeathsAndTheRetriesOfWhatPassedAtLast) {
  for (const char* key : {"dies", "late", "passes"}) Enqueue(key, 1);
  Claimer a = NewClaimer("a");
  const Claim first = a.Take();
  ASSERT_EQ(Names(first), "dies:1 late:1 passes:1");
  ASSERT_TRUE(a.store
                  ->MarkFailed({AsFailure(first.rows[0], Millis(0), /*dead=*/true),
                                AsFailure(first.rows[1], Millis(0))},
                               "a")
                  .ok());
  ASSERT_TRUE(a.store->MarkPublished({{Shared(first.rows[2]), "m1"}}).ok());
  const Claim again = a.Take();
  ASSERT_EQ(Names(again), "late:1");
  ASSERT_TRUE(a.store->MarkPublished(AsPublished(again), "a").ok());
  const auto audit = db_.Query(
      "SELECT string_agg(format('%s %s %s %s', action, sequence, actor, detail), E'\n' ORDER BY "
      "sequence) FROM lockstep.outbox_audit");
  EXPECT_EQ(audit.Text(0, 0),
            "outbox_flush_dead 1 a {\"attempts\": 1, \"error_code\": \"UNKNOWN.INTERNAL\"}\n"
            "outbox_flush_retry 2 a {\"attempts\": 1, \"message_id\": \"m\"}");
}

// A lease that was lost ends nothing.
TEST_F(OutboxAudit, HasNoEndThatWasNotWritten) {
  Enqueue("k", 1);
  Claimer a = NewClaimer("a");
  const Claim claim = a.Take();
  db_.Run("UPDATE shop.outbox_status SET lock_token = gen_random_uuid()");
  ASSERT_TRUE(a.store->MarkFailed({AsFailure(claim.rows[0], Millis(0), /*dead=*/true)}).ok());
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit"), 0);
}

using ClaimAndClock = OutboxTest;

using Leases = OutboxTest;

TEST_F(Leases, AreARowPerClaimThatGoesWithItsLastMark) {
  EnqueueMany("k", 4);
  Claimer a = NewClaimer("a");
  const Claim claim = a.Take();
  ASSERT_EQ(claim.rows.size(), 4u);
  EXPECT_EQ(db_.QueryInt("SELECT cardinality(sequences) FROM shop.outbox_leases"), 4);
  ASSERT_TRUE(a.store->MarkPublished({{Shared(claim.rows[0]), "m"}}).ok());
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_leases"), 1);
  // What is given back is out of it.
  ASSERT_TRUE(a.store->MarkFailed({AsFailure(claim.rows[1], Millis(0))}).ok());
  EXPECT_EQ(Count("lock_token IS NULL AND published_at IS NULL"), 1);
  ASSERT_TRUE(a.store
                  ->MarkPublished({{Shared(claim.rows[2]), "m"}, {Shared(claim.rows[3]), "m"}}, "",
                                  {a.request.token})
                  .ok());
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_leases"), 0);
  EXPECT_EQ(Count("published_at IS NOT NULL"), 3);
}

// Its holder is marking rows, late: he has the lease in hand, and keeps it.
TEST_F(Leases, ThatAreOverAreNotTakenWhileTheirHolderMarksRows) {
  Enqueue("k", 1);
  ASSERT_EQ(Names(NewClaimer("a").Take()), "k:1");
  db_.Run("UPDATE shop.outbox_leases SET locked_at = now() - interval '1 hour'");
  const auto marking = db_.Connect();
  auto transaction = marking->Begin();
  ASSERT_TRUE(transaction->Execute("SELECT FROM shop.outbox_leases FOR UPDATE").ok());
  for (const bool few : {false, true}) {
    Claimer b = NewClaimer("b");
    b.request.few = few;
    EXPECT_EQ(Names(b.Take()), "");
  }
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_EQ(Names(NewClaimer("b").Take()), "k:1");
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.outbox_leases WHERE owner = 'a'"), 0);
}

// A row is counted as enqueued at its first claim, whatever becomes of that one.
TEST_F(Leases, ThatEndedAreRememberedByTheRowsThatAreNotTakenAtOnce) {
  EnqueueMany("k", 3);
  ASSERT_EQ(NewClaimer("a").Take().rows.size(), 3u);
  db_.Run("UPDATE shop.outbox_leases SET locked_at = now() - interval '1 hour'");
  Claimer b = NewClaimer("b");
  b.request.rows = 1;
  ClaimCursor cursor;
  Claim claim = b.Take(&cursor);
  ASSERT_EQ(Names(claim), "k:1");
  EXPECT_FALSE(claim.rows[0].first_claim);
  b.request.live_tokens = {b.request.token};
  b.request.rows = 10;
  claim = b.Take();
  ASSERT_EQ(Names(claim), "k:2 k:3");
  EXPECT_FALSE(claim.rows[0].first_claim);
  EXPECT_FALSE(claim.rows[1].first_claim);
}

// A claim that looks from a place on does not read the leases from before it, of which a long
// snapshot elsewhere keeps very many.
TEST_F(Leases, FromBeforeTheCursorAreNotNeeded) {
  Enqueue("k", 1);
  Claimer a = NewClaimer("a");
  ClaimCursor cursor;
  ASSERT_EQ(Names(a.Take(&cursor)), "k:1");
  Enqueue("k", 2);
  Enqueue("l", 1);
  Claimer b = NewClaimer("b");
  EXPECT_EQ(Names(b.Take(&cursor)), "l:1") << "the lease on k:1 is older, and counts";
}

// The database's clock has gone back: nobody can hold a lease from the future.
TEST_F(ClaimAndClock, ALeaseFromTheFutureIsNone) {
  Enqueue("k", 1);
  ASSERT_EQ(Names(NewClaimer("a").Take()), "k:1");
  EXPECT_EQ(Names(NewClaimer("b").Take()), "");
  db_.Run("UPDATE shop.outbox_status SET locked_at = now() + interval '1 hour'");
  EXPECT_EQ(Names(NewClaimer("b").Take()), "k:1");
}

}  // namespace
}  // namespace lockstep::publisher
