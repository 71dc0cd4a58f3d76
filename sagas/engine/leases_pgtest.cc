// Several engines, and holders that have lost what they held.
#include <thread>

#include "sagas/engine/hand.h"
#include "sagas/store/work_store.h"
#include "sagas/testing/engine_test.h"

namespace lockstep::sagas {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the fixture's words
using ::testing::HasSubstr;

class Leases : public EngineTest {
 protected:
  std::vector<Claimed> Claim(const std::string& owner = "x", int at_most = 10) {
    auto claimed = LeaseStore(*connection_).Claim(owner, Millis(15'000), at_most, {});
    EXPECT_TRUE(claimed.ok()) << claimed.status();
    return claimed.value_or(std::vector<Claimed>());
  }
  // The database's clock jumps forward: all that is written is so much older than it was.
  void Jump(Millis by) {
    const std::string interval = fmt::format("interval '{} milliseconds'", by.count());
    db_.Run(
        fmt::format("UPDATE lockstep.saga_work SET run_at = run_at - {0}, set_at = set_at - {0}; "
                    "UPDATE lockstep.saga_steps SET available_at = available_at - {0}, deadline = "
                    "deadline - {0}; "
                    "UPDATE lockstep.sagas SET deadline = deadline - {0}, created_at = created_at "
                    "- {0}, ended_at = ended_at - {0}, dead_at = dead_at - {0}",
                    interval));
  }
};

TEST_F(Leases, AClaimIsOnesUntilItEnds) {
  RegisterSteps(SqlStep("reserve"));
  const std::string id = Start();
  ASSERT_EQ(Claim().size(), 1u);
  EXPECT_TRUE(Claim("y").empty());
  Jump(Millis(16'000));
  EXPECT_EQ(Claim("y").size(), 1u);
}

TEST_F(Leases, WhoHasLostItsLeaseWritesNothing) {
  RegisterSteps(SqlStep("reserve"));
  const std::string id = Start();
  const Lease old = Claim().at(0).lease;
  WorkStore store(*connection_);
  ASSERT_EQ(store.Load({old})->size(), 1u);
  EndLeases();
  const Lease fresh = Claim("y").at(0).lease;
  EXPECT_NE(old.token, fresh.token);
  EXPECT_TRUE(store.Load({old})->empty());
  EXPECT_TRUE(IsLost(store.Hold(old).status()));
  StoredStep step = Show(id).steps[0];
  step.state = StepState::kSucceeded;
  EXPECT_TRUE(IsLost(store
                         .CallAndSave(old, "shop.note", R"({"what": "stolen"})", step,
                                      StepState::kReady, std::nullopt, Millis(0))
                         .status()));
  EXPECT_EQ(Ledger(), "") << "the function was not even called";
  EXPECT_FALSE(*store.Release(old, std::nullopt));
  EXPECT_TRUE(store.Hold(fresh).ok());
}

TEST_F(Leases, AHolderSeesThatSomebodyHasChangedItsSaga) {
  RegisterSteps(SqlStep("reserve"));
  const std::string id = Start();
  const Lease lease = Claim().at(0).lease;
  ASSERT_TRUE(CancelSaga(*connection_, By(id)).ok());
  WorkStore store(*connection_);
  EXPECT_TRUE(IsLost(store.Hold(lease).status()));
  EXPECT_FALSE(*store.Release(lease, std::nullopt));
  const auto renewed = LeaseStore(*connection_).Renew({lease}, Millis(1'000));
  ASSERT_EQ(renewed->size(), 1u);
  EXPECT_EQ(renewed->at(0).lease.revision, lease.revision + 1);
  EXPECT_TRUE(store.Hold(renewed->at(0).lease).ok());
}

// Its end is what it was: whoever is told otherwise begins a call, and another takes the saga.
TEST_F(Leases, WhatSomebodyHasLockedIsNotRenewed) {
  RegisterSteps(SqlStep("reserve"));
  const std::string id = Start();
  const Lease lease = Claim().at(0).lease;
  const auto other = db_.Connect();
  auto transaction = other->Begin();
  ASSERT_TRUE(PauseSaga(*transaction, By(id)).ok());
  const auto locked = LeaseStore(*connection_).Renew({lease}, Millis(60'000));
  ASSERT_EQ(locked->size(), 1u) << "it is the caller's still";
  EXPECT_FALSE(locked->at(0).renewed);
  ASSERT_TRUE(transaction->Rollback().ok());
  EXPECT_TRUE(LeaseStore(*connection_).Renew({lease}, Millis(60'000))->at(0).renewed);

  Hand hand(1, [] {});
  const auto held = std::make_shared<Held>(LoadedSaga{.saga = Show(id), .lease = lease});
  const SteadyTime now = Clock::System().Steady();
  hand.Add(held, now + Millis(30'000));
  hand.Renewed({lease}, {{lease, false}}, now + Millis(90'000));
  EXPECT_FALSE(hand.LeaseHolds(*held, Millis(60'000)));
  hand.Renewed({lease}, {{lease, true}}, now + Millis(90'000));
  EXPECT_TRUE(hand.LeaseHolds(*held, Millis(60'000)));
}

// While its transaction has the row, nobody can renew it; a neighbour's call may be under way.
TEST_F(Leases, AStepThatTakesLongRenewsItsLease) {
  RegisterSteps(SqlStep("reserve") + "," + SqlStep("ship"));
  const std::string id = Start();
  auto claimed = LeaseStore(*connection_).Claim("x", Millis(2'000), 1, {});
  ASSERT_EQ(claimed->size(), 1u);
  StoredStep step = Show(id).steps[0];
  step.state = StepState::kSucceeded;
  db_.Run(
      "ALTER FUNCTION shop.note RENAME TO quick; CREATE FUNCTION shop.note(request jsonb) RETURNS "
      "jsonb LANGUAGE sql AS 'SELECT pg_sleep(2.1); SELECT shop.quick(request)'");
  ASSERT_TRUE(WorkStore(*connection_)
                  .CallAndSave(claimed->at(0).lease, "shop.note", "{}", step, StepState::kReady,
                               std::nullopt, Millis(0))
                  .ok());
  EXPECT_TRUE(Claim("y").empty());
}

TEST_F(Leases, AHundredStartsUnderOneKeyAreOneSaga) {
  RegisterSteps(SqlStep("reserve"));
  std::vector<std::string> ids(100);
  std::vector<std::thread> threads;
  for (int t = 0; t < 10; ++t) {
    threads.emplace_back([&, t] {
      const auto session = db_.Connect();
      for (int i = 0; i < 10; ++i) {
        NewSaga saga{.definition = "order", .input = {{"n", 1}}, .key = "k"};
        const auto id = StartSaga(*session, saga);
        ids[static_cast<size_t>(10 * t + i)] = id.ok() ? *id : std::string(MessageOf(id.status()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& id : ids) EXPECT_EQ(id, ids[0]);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.sagas"), 1);
  NewSaga other{.definition = "order", .input = {{"n", 2}}, .key = "k"};
  EXPECT_TRUE(absl::IsFailedPrecondition(StartSaga(*connection_, other).status()));
  other.tenant = "t";
  EXPECT_TRUE(StartSaga(*connection_, other).ok()) << "another tenant's key is another";
}

TEST_F(Leases, AnotherTakesOverWhatADeadOneHeld) {
  RegisterSteps(HttpStep("pack", true, R"(, "timeout": "100s")") + "," + SqlStep("ship"));
  Tell("pack", {HttpTestServer::kHang});
  EngineOptions dying = Options("dying");
  std::atomic<bool> die = false;
  dying.seam = [&](std::string_view) {
    if (die) throw SeamCrash();
  };
  dying.lease = Millis(1'000);
  Engine& first = Run(dying);
  const std::string id = Start();
  ASSERT_TRUE(Eventually([&] { return Asked() == "pack"; }));
  die = true;
  ASSERT_TRUE(Eventually([&] { return first.crashed(); })) << "its heartbeat stops";
  Run(Options("heir"));
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Asked(), "pack pack");
}

TEST_F(Leases, AStepThatMayNotBeDoneTwiceIsInDoubtAfterATakeover) {
  RegisterSteps(HttpStep("charge", false, R"(, "timeout": "100s")"));
  Tell("charge", {HttpTestServer::kHang});
  EngineOptions dying = Options("dying");
  std::atomic<bool> die = false;
  dying.seam = [&](std::string_view) {
    if (die) throw SeamCrash();
  };
  dying.lease = Millis(1'000);
  Engine& first = Run(dying);
  const std::string id = Start();
  ASSERT_TRUE(Eventually([&] { return Asked() == "charge"; }));
  die = true;
  ASSERT_TRUE(Eventually([&] { return first.crashed(); }));
  Run(Options("heir"));
  ASSERT_TRUE(Becomes(id, SagaState::kPaused));
  EXPECT_EQ(Asked(), "charge");
}

TEST_F(Leases, AKeyTellsWhatBecameOfACall) {
  RegisterSteps(HttpStep("charge", false, R"(, "settled_by": "idempotency_key")"));
  const auto put = [&](const std::string& id, const std::string& end) {
    db_.Run(fmt::format("SELECT lockstep.idempotency_check_and_put(NULL, '{0}/charge', 'h'); {1}",
                        id, end));
  };
  const std::string done = Start();
  put(done, fmt::format("SELECT lockstep.idempotency_finish(NULL, '{}/charge', '{{\"id\": 9}}', "
                        "(SELECT token FROM lockstep.idempotency_keys WHERE key LIKE '{}%'))",
                        done, done));
  const std::string failed = Start();
  put(failed, fmt::format("SELECT lockstep.idempotency_fail(NULL, '{}/charge', 'no money', (SELECT "
                          "token FROM lockstep.idempotency_keys WHERE key LIKE '{}%'))",
                          failed, failed));
  const std::string long_ago = Start();
  put(long_ago,
      fmt::format("SELECT lockstep.idempotency_finish(NULL, '{0}/charge', '8', (SELECT "
                  "token FROM lockstep.idempotency_keys WHERE key LIKE '{0}%')); UPDATE "
                  "lockstep.idempotency_keys SET expires_at = now() WHERE key LIKE '{0}%'",
                  long_ago));
  const std::string unknown = Start();
  for (const std::string& id : {done, failed, long_ago, unknown}) {
    db_.Run(fmt::format("UPDATE lockstep.saga_steps SET state = 'InFlight' WHERE saga = '{}'", id));
  }
  // An earlier answer of it was lost; the key knows that it was not done: there is nothing to undo.
  db_.Run(
      fmt::format("UPDATE lockstep.saga_steps SET maybe_done = true WHERE saga = '{}'", failed));
  Run();
  ASSERT_TRUE(Becomes(done, SagaState::kCompleted));
  EXPECT_EQ(StepOf(done, "charge").result, (Json{{"id", 9}}));
  ASSERT_TRUE(Becomes(failed, SagaState::kFailed));
  EXPECT_THAT(Show(failed).error, HasSubstr("no money"));
  ASSERT_TRUE(Becomes(long_ago, SagaState::kCompleted));
  EXPECT_EQ(StepOf(long_ago, "charge").result, Json(8));
  ASSERT_TRUE(Becomes(unknown, SagaState::kCompleted));
  EXPECT_EQ(Asked(), "charge") << "only the one of which the key knew nothing";
}

TEST_F(Leases, TwoEnginesShareTheSagasAndNoneIsDoneTwice) {
  RegisterSteps(SqlStep("reserve") + "," + SqlStep("ship"));
  Run(Options("a"));
  Run(Options("b"));
  std::vector<std::string> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(Start());
  ASSERT_TRUE(Eventually([&] {
    return db_.QueryInt("SELECT count(*) FROM lockstep.sagas WHERE state = 'Completed'") == 200;
  }));
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.ledger"), 400);
}

TEST_F(Leases, AClockThatWasSetBackHoldsNothing) {
  RegisterSteps(SqlStep("reserve"));
  const std::string id = Start();
  ASSERT_EQ(Claim().size(), 1u);  // and its holder dies
  Jump(Millis(-3'600'000));       // what was written lies in the future now
  EXPECT_TRUE(Claim("y").empty());
  EXPECT_EQ(*CleanSagas(*connection_, Millis(1'000'000'000), 100), 0);
  EXPECT_EQ(Claim("y").size(), 1u);
}

TEST_F(Leases, AClockThatJumpsForwardsOnlyHandsOver) {
  RegisterSteps(SqlStep("reserve") + "," + WaitStep("approve") + "," + SqlStep("ship"));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(StepBecomes(id, "approve", StepState::kInFlight));
  Jump(Millis(86'400'000));
  EXPECT_TRUE(Signal(id, "approve"));
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  EXPECT_EQ(Ledger(), "reserve ship");
}

TEST_F(Leases, ASessionThatIsEndedIsReplaced) {
  RegisterSteps(WaitStep("approve") + "," + SqlStep("ship"));
  Run();
  const std::string id = Start();
  ASSERT_TRUE(StepBecomes(id, "approve", StepState::kInFlight));
  db_.Run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE "
      "'lockstep-orchestrator%'");
  EXPECT_TRUE(Signal(id, "approve"));
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
}

}  // namespace
}  // namespace lockstep::sagas
