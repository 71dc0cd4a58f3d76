// Keys in the caller's own transaction, and many callers at once.
#include <barrier>
#include <thread>
#include <vector>

#include "idempotency/testing/keys_test.h"
#include "postgres/sql_error.h"

namespace lockstep::idempotency {
namespace {

constexpr int kCallers = 100;

class Transactions : public KeysTest {
 protected:
  Transactions() { db_.Run("CREATE TABLE public.effects (n int)"); }
  int64_t Effects() { return db_.QueryInt("SELECT count(*) FROM public.effects"); }
  static absl::Status HaveEffect(postgres::Executor& executor) {
    return executor.Run("INSERT INTO public.effects VALUES (1)");
  }
};

TEST_F(Transactions, EffectAndRecordCommitTogether) {
  auto transaction = connection_->Begin();
  PostgresStore store(*transaction);
  ASSERT_EQ(store.CheckAndPut(Ask("k"))->outcome, Outcome::kGo);
  ASSERT_TRUE(HaveEffect(*transaction).ok());
  ASSERT_TRUE(store.Finish({{}, "k", ""}, "d").ok()) << "its own transaction needs no token";
  EXPECT_EQ(Keys(), 0);
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_EQ(Call(Ask("k")).digest, "d");
}

TEST_F(Transactions, ARollbackTakesTheRecordAway) {
  {
    auto transaction = connection_->Begin();
    PostgresStore store(*transaction);
    ASSERT_EQ(store.CheckAndPut(Ask("k"))->outcome, Outcome::kGo);
    ASSERT_TRUE(HaveEffect(*transaction).ok());
    ASSERT_TRUE(store.Finish({{}, "k", ""}, "d").ok());
  }
  EXPECT_EQ(Effects(), 0);
  EXPECT_EQ(OutcomeOf("k"), Outcome::kGo) << "at once";
}

TEST_F(Transactions, ASavepointInBetweenDoesNotMatter) {
  auto transaction = connection_->Begin();
  PostgresStore store(*transaction);
  ASSERT_TRUE(transaction->Run("SAVEPOINT put").ok());
  ASSERT_EQ(store.CheckAndPut(Ask("k"))->outcome, Outcome::kGo);
  ASSERT_TRUE(transaction->Run("SAVEPOINT work").ok());
  ASSERT_TRUE(HaveEffect(*transaction).ok());
  ASSERT_TRUE(transaction->Run("ROLLBACK TO work").ok());
  ASSERT_TRUE(store.Fail({{}, "k", ""}, "no money").ok());
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_EQ(Call(Ask("k")).error, "no money");
}

// An INSERT … ON CONFLICT would wait for the first one's transaction.
TEST_F(Transactions, NobodyWaitsForAnOpenTransaction) {
  auto transaction = connection_->Begin();
  PostgresStore store(*transaction);
  ASSERT_EQ(store.CheckAndPut(Ask("k"))->outcome, Outcome::kGo);
  const auto other = db_.Connect();
  ASSERT_TRUE(other->Run("SET lock_timeout = '1ms'").ok());
  const auto busy = PostgresStore(*other).CheckAndPut(Ask("k"));
  ASSERT_TRUE(busy.ok()) << busy.status();
  EXPECT_EQ(busy->outcome, Outcome::kBusy);
  EXPECT_EQ(PostgresStore(*other).CheckAndPut(Ask("another"))->outcome, Outcome::kGo);
  Request of_tenant = Ask("k");
  of_tenant.tenant = "t";
  EXPECT_EQ(PostgresStore(*other).CheckAndPut(of_tenant)->outcome, Outcome::kGo);
  ASSERT_TRUE(transaction->Rollback().ok());
  EXPECT_EQ(PostgresStore(*other).CheckAndPut(Ask("k"))->outcome, Outcome::kGo);
}

TEST_F(Transactions, NobodyWaitsForAnOpenTakeoverOrFinish) {
  const std::string token = TakeAndDie("k");
  TakeAndDie("dead");
  auto transaction = connection_->Begin();
  PostgresStore store(*transaction);
  ASSERT_TRUE(store.Finish({{}, "k", token}, "d").ok());
  const auto other = db_.Connect();
  ASSERT_TRUE(other->Run("SET lock_timeout = '1ms'").ok());
  EXPECT_EQ(PostgresStore(*other).CheckAndPut(Ask("k"))->outcome, Outcome::kBusy);
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_EQ(PostgresStore(*other).CheckAndPut(Ask("k"))->outcome, Outcome::kDone);
  Jump(Millis(61'000));
  auto takeover = connection_->Begin();
  ASSERT_EQ(PostgresStore(*takeover).CheckAndPut(Ask("dead"))->outcome, Outcome::kGo);
  const auto busy = PostgresStore(*other).CheckAndPut(Ask("dead"));
  ASSERT_TRUE(busy.ok()) << busy.status();
  EXPECT_EQ(busy->outcome, Outcome::kBusy);
}

// A caller that was too slow has its effect undone with its finish.
TEST_F(Transactions, ALatecomersWorkDoesNotCommit) {
  const std::string late = TakeAndDie("k");
  Jump(Millis(61'000));
  const std::string winner = Call(Ask("k")).token;
  auto transaction = connection_->Begin();
  ASSERT_TRUE(HaveEffect(*transaction).ok());
  EXPECT_EQ(PostgresStore(*transaction).Finish({{}, "k", late}, "late").code(),
            absl::StatusCode::kAborted);
  EXPECT_FALSE(transaction->Commit().ok()) << "the refusal has spoiled it";
  EXPECT_EQ(Effects(), 0);
  EXPECT_TRUE(store_.Finish({{}, "k", winner}, "d").ok());
}

// A crash between put and finish.
TEST_F(Transactions, AKilledSessionLeavesNothingOfItsTransaction) {
  const auto victim = db_.Connect();
  {
    auto transaction = victim->Begin();
    ASSERT_EQ(PostgresStore(*transaction).CheckAndPut(Ask("k"))->outcome, Outcome::kGo);
    db_.Query("SELECT pg_terminate_backend($1, 30000)", postgres::Params(victim->backend_pid()));
  }
  EXPECT_EQ(OutcomeOf("k"), Outcome::kGo);
}

TEST_F(Transactions, AKilledCallerOutsideOfATransactionKeepsItsKeyForItsLease) {
  const auto victim = db_.Connect();
  ASSERT_EQ(PostgresStore(*victim).CheckAndPut(Ask("k"))->outcome, Outcome::kGo);
  db_.Query("SELECT pg_terminate_backend($1, 30000)", postgres::Params(victim->backend_pid()));
  EXPECT_EQ(OutcomeOf("k"), Outcome::kBusy);
  Jump(Millis(61'000));
  EXPECT_EQ(OutcomeOf("k"), Outcome::kGo);
  EXPECT_EQ(Keys("attempts = 2"), 1);
}

// All that come at once, each on a session of its own; whoever goes has an effect.
class AHundred : public Transactions, public ::testing::WithParamInterface<bool> {
 protected:
  std::vector<Outcome> CallAtOnce(bool in_transactions) {
    std::vector<Outcome> outcomes(kCallers, Outcome::kConflict);
    std::barrier start(kCallers), called(kCallers);
    std::vector<std::jthread> callers;
    for (int i = 0; i < kCallers; ++i) {
      callers.emplace_back([&, i] {
        const auto connection = db_.Connect();
        start.arrive_and_wait();
        auto transaction = connection->Begin();
        postgres::Executor& executor =
            in_transactions ? static_cast<postgres::Executor&>(*transaction) : *connection;
        if (!in_transactions) {
          EXPECT_TRUE(transaction->Rollback().ok());
        }
        PostgresStore store(executor);
        const auto answer = store.CheckAndPut(Ask("k"));
        EXPECT_TRUE(answer.ok()) << answer.status();
        if (answer.ok()) outcomes[i] = answer->outcome;
        called.arrive_and_wait();  // transactions are open until all have called
        if (outcomes[i] == Outcome::kGo) {
          EXPECT_TRUE(HaveEffect(executor).ok());
          EXPECT_TRUE(store.Finish({{}, "k", answer->token}, "d").ok());
        }
        if (in_transactions) {
          EXPECT_TRUE(transaction->Commit().ok());
        }
      });
    }
    callers.clear();
    return outcomes;
  }
};
INSTANTIATE_TEST_SUITE_P(Idempotency, AHundred, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "InTransactions" : "Outside");
});

TEST_P(AHundred, CallersOfOneKeyAndOneGoes) {
  const auto outcomes = CallAtOnce(GetParam());
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), Outcome::kGo), 1);
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), Outcome::kBusy), kCallers - 1);
  EXPECT_EQ(Effects(), 1);
  EXPECT_EQ(Call(Ask("k")).digest, "d");
}

TEST_P(AHundred, CallersOfAnAbandonedKeyAndOneGoes) {
  TakeAndDie("k");
  Jump(Millis(61'000));
  const auto outcomes = CallAtOnce(GetParam());
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), Outcome::kGo), 1);
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), Outcome::kBusy), kCallers - 1);
  EXPECT_EQ(Effects(), 1);
}

}  // namespace
}  // namespace lockstep::idempotency
