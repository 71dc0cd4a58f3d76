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
        "CREATE OR REPLACE FUNCTION lockstep.shard_of(aggregate_id text, shards int) RETURNS int "
        "LANGUAGE plpgsql VOLATILE AS $$ BEGIN IF aggregate_id = 'gate' THEN PERFORM "
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
  db_.Run("UPDATE shop.outbox SET last_error = 'touched' WHERE aggregate_id = 'k' AND version = 1");
  db_.Run("SELECT pg_advisory_unlock(4711)");
  const Claim taken = claim.get();
  EXPECT_EQ(Names(taken), "gate:1 k:1 k:2");
  // By one statement: what another one brings, it may just as well not bring.
  for (const OutboxRow& row : taken.rows) EXPECT_EQ(row.lock_token, claimer.request.token);
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
  db_.Run("UPDATE shop.outbox SET lock_token = gen_random_uuid()");
  ASSERT_TRUE(a.store->MarkFailed({AsFailure(claim.rows[0], Millis(0), /*dead=*/true)}).ok());
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit"), 0);
}

using ClaimAndClock = OutboxTest;

// The database's clock has gone back: nobody can hold a lease from the future.
TEST_F(ClaimAndClock, ALeaseFromTheFutureIsNone) {
  Enqueue("k", 1);
  ASSERT_EQ(Names(NewClaimer("a").Take()), "k:1");
  EXPECT_EQ(Names(NewClaimer("b").Take()), "");
  db_.Run("UPDATE shop.outbox SET locked_at = now() + interval '1 hour'");
  EXPECT_EQ(Names(NewClaimer("b").Take()), "k:1");
}

}  // namespace
}  // namespace lockstep::publisher
