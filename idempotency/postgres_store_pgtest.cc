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

// No CHECK looks at what they write, so the functions do.
TEST_F(PostgresStoreTest, WhatIsTooLargeIsRefusedWhoeverAsks) {
  const auto refused = [&](const std::string& call) {
    return postgres::SqlState(connection_->Run("SELECT lockstep.idempotency_" + call)) == "22023";
  };
  EXPECT_TRUE(refused("check_and_put('', 'k', 'h')"));
  EXPECT_TRUE(refused("check_and_put(repeat('x', 1025), 'k', 'h')"));
  EXPECT_TRUE(refused("check_and_put('t', NULL, 'h')"));
  EXPECT_TRUE(refused("check_and_put('t', '', 'h')"));
  EXPECT_TRUE(refused("check_and_put('t', repeat('é', 513), 'h')"));
  EXPECT_TRUE(refused("check_and_put('t', 'k', NULL)"));
  EXPECT_TRUE(refused("check_and_put('t', 'k', repeat('x', 257))"));
  EXPECT_TRUE(refused("check_and_put('t', 'k', 'h', '0')"));
  EXPECT_TRUE(refused("check_and_put('t', 'k', 'h', '367 days')"));
  EXPECT_TRUE(refused("check_and_put('t', 'k', 'h', NULL)"));
  EXPECT_TRUE(refused("check_and_put('t', 'k', 'h', lease => '-1 s')"));
  EXPECT_TRUE(refused("check_and_put('t', 'k', 'h', lease => '25 hours')"));
  EXPECT_TRUE(refused("check_and_put('t', 'k', 'h', lease => NULL)"));
  EXPECT_EQ(Keys(), 0);
  EXPECT_FALSE(refused("check_and_put(repeat('x', 1024), repeat('x', 1024), repeat('x', 256))"));
  const std::string token = TakeAndDie("k");
  EXPECT_TRUE(refused(fmt::format("renew(NULL, 'k', '25 hours', '{}')", token)));
  EXPECT_TRUE(refused(fmt::format("finish(NULL, 'k', repeat('x', 4097), '{}')", token)));
  EXPECT_FALSE(refused(fmt::format("finish(NULL, 'k', repeat('x', 4096), '{}')", token)));
  const std::string other = TakeAndDie("f");
  EXPECT_FALSE(refused(fmt::format("fail(NULL, 'f', repeat('é', 2000), '{}')", other)));
  EXPECT_EQ(Keys("octet_length(error) = 2048"), 1);
}

}  // namespace
}  // namespace lockstep::idempotency
