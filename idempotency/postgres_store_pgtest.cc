#include "idempotency/postgres_store.h"
#include "idempotency/testing/keys_test.h"
#include "postgres/sql_error.h"

namespace lockstep::idempotency {
namespace {

using ::testing::HasSubstr;

TEST(PostgresStore, SaysHowToMakeTheTables) {
  testing::TestDatabase db;
  const auto connection = db.Connect();
  EXPECT_THAT(std::string(MessageOf(PostgresStore(*connection).CheckAndPut(Ask("k")).status())),
              HasSubstr("lockstepctl migrate up --set idempotency"));
}

class PostgresStoreTest : public KeysTest {};

TEST_F(PostgresStoreTest, AHitWritesNothing) {
  ASSERT_TRUE(store_.Finish({{}, "k", TakeAndDie("k")}, "d").ok());
  auto transaction = connection_->Begin();
  PostgresStore store(*transaction);
  ASSERT_EQ(store.CheckAndPut(Ask("k"))->outcome, Outcome::kDone);
  ASSERT_EQ(store.CheckAndPut(Ask("k", "other"))->outcome, Outcome::kConflict);
  EXPECT_EQ(*transaction->Number("SELECT (pg_current_xact_id_if_assigned() IS NULL)::int"), 1);
}

TEST_F(PostgresStoreTest, FinishingInTimeChangesNoIndex) {
  for (int i = 0; i < 20; ++i) {
    const std::string key = fmt::format("k{}", i);
    const auto answer = store_.CheckAndPut(Ask(key));
    ASSERT_TRUE(store_.Finish({{}, key, answer->token}, "d").ok());
  }
  EXPECT_EQ(Keys("expires_at = created_at + lease + ttl"), 20);
  ASSERT_TRUE(connection_->Run("SELECT pg_stat_force_next_flush()").ok());
  EXPECT_GE(db_.QueryInt("SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = "
                         "'idempotency_keys'"),
            15);
}

TEST_F(PostgresStoreTest, NoFunctionAsksTheCallersPath) {
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM pg_proc WHERE proname LIKE 'idempotency%' AND "
                         "(proconfig IS NULL OR NOT 'search_path=lockstep, pg_temp' = "
                         "ANY (proconfig))"),
            0);
  ASSERT_TRUE(connection_
                  ->Run("CREATE SCHEMA trap; CREATE FUNCTION trap.evil(text, text) RETURNS boolean "
                        "LANGUAGE sql AS 'SELECT true'; CREATE OPERATOR trap.= (LEFTARG = text, "
                        "RIGHTARG = text, FUNCTION = trap.evil); SET search_path = trap, "
                        "pg_catalog")
                  .ok());
  TakeAndDie("k");
  EXPECT_EQ(store_.CheckAndPut(Ask("other"))->outcome, Outcome::kGo);
  EXPECT_EQ(store_.CheckAndPut(Ask("k", "another hash"))->outcome, Outcome::kConflict);
}

// What no function of ours writes is refused, whoever writes it.
TEST_F(PostgresStoreTest, TheTableKeepsItsRules) {
  TakeAndDie("k");
  const auto refused = [&](const std::string& change) {
    return postgres::SqlState(connection_->Run("UPDATE lockstep.idempotency_keys SET " + change)) ==
           "23514";
  };
  EXPECT_TRUE(refused("state = 'Lost'"));
  EXPECT_TRUE(refused("lease_until = NULL"));
  EXPECT_TRUE(refused("state = 'Succeeded'"));
  EXPECT_TRUE(refused("lease_until = expires_at + interval '1 second'"));
  EXPECT_TRUE(refused("digest = 'd'"));
  EXPECT_TRUE(refused("error = 'e'"));
  EXPECT_TRUE(refused("state = 'Succeeded', lease_until = NULL, digest = repeat('x', 4097)"));
  EXPECT_TRUE(refused("state = 'Failed', lease_until = NULL"));
  EXPECT_TRUE(refused("state = 'Failed', lease_until = NULL, error = repeat('x', 2049)"));
  EXPECT_TRUE(refused("tenant = ''"));
  EXPECT_TRUE(refused("key = ''"));
  EXPECT_TRUE(refused("hash = repeat('x', 257)"));
  EXPECT_TRUE(refused("lease = interval '2 days'"));
  EXPECT_TRUE(refused("ttl = interval '0'"));
  EXPECT_FALSE(refused("state = 'Succeeded', lease_until = NULL, digest = repeat('x', 4096)"));
}

}  // namespace
}  // namespace lockstep::idempotency
