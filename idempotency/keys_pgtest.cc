#include "idempotency/keys.h"
#include "idempotency/testing/keys_test.h"

namespace lockstep::idempotency {
namespace {

using ::testing::HasSubstr;

constexpr Millis kDay{24 * 3'600'000};

class KeyDesk : public KeysTest {
 protected:
  void Done(const std::string& key) {
    ASSERT_TRUE(store_.Finish({{}, key, TakeAndDie(key)}, "d").ok());
  }
};

TEST_F(KeyDesk, AreListedTheYoungestFirst) {
  Done("order-1");
  TakeAndDie("order-2");
  ASSERT_TRUE(store_.Fail({{}, "x", TakeAndDie("x")}, "no money").ok());
  const auto all = ListKeys(*connection_, {});
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[0]["key"], "x");
  EXPECT_EQ((*all)[0]["error"], "no money");
  EXPECT_EQ((*all)[2]["state"], "Succeeded");
  EXPECT_FALSE((*all)[2].contains("digest"));
  EXPECT_EQ(ListKeys(*connection_, {.prefix = "order-"})->size(), 2u);
  EXPECT_EQ(ListKeys(*connection_, {.state = "Failed"})->size(), 1u);
  EXPECT_EQ(ListKeys(*connection_, {.tenant = "t"})->size(), 0u);
  EXPECT_EQ(ListKeys(*connection_, {.limit = 2})->size(), 2u);
  Jump(kDay);
  EXPECT_EQ((*ListKeys(*connection_, {.state = "InFlight"}))[0]["lapsed"], true);
  EXPECT_EQ((*ListKeys(*connection_, {.state = "InFlight"}))[0]["expired"], false);
}

TEST_F(KeyDesk, AReleasedKeyIsAsIfItHadNeverBeenAndTheAuditSaysWho) {
  ASSERT_TRUE(store_.Fail({{}, "k", TakeAndDie("k")}, "no money").ok());
  const auto state = ReleaseKey(*connection_, {.key = "k", .actor = "ann", .note = "paid now"});
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(*state, "Failed");
  EXPECT_EQ(Call(Ask("k", "another request")).outcome, Outcome::kGo);
  const auto shown = ShowKey(*connection_, {}, "k");
  ASSERT_EQ((*shown)["audit"].size(), 1u);
  EXPECT_EQ((*shown)["audit"][0]["actor"], "ann");
  EXPECT_EQ((*shown)["audit"][0]["state"], "Failed");
  EXPECT_EQ((*shown)["audit"][0]["note"], "paid now");
  EXPECT_TRUE(absl::IsNotFound(ReleaseKey(*connection_, {.key = "k2", .actor = "ann"}).status()));
  EXPECT_TRUE(absl::IsNotFound(ShowKey(*connection_, "t", "k").status()));
}

TEST_F(KeyDesk, OneThatIsInFlightIsReleasedByForceAlone) {
  const std::string token = TakeAndDie("k");
  EXPECT_THAT(std::string(MessageOf(ReleaseKey(*connection_, {.key = "k", .actor = "a"}).status())),
              HasSubstr("in flight until"));
  EXPECT_EQ(Keys(), 1);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.idempotency_audit"), 0);
  EXPECT_EQ(*ReleaseKey(*connection_, {.key = "k", .actor = "a", .force = true}), "InFlight");
  EXPECT_EQ(store_.Finish({{}, "k", token}, "d").code(), absl::StatusCode::kAborted);
  TakeAndDie("dead");
  Jump(Millis(61'000));
  EXPECT_EQ(*ReleaseKey(*connection_, {.key = "dead", .actor = "a"}), "InFlight");
}

TEST_F(KeyDesk, WhatHasExpiredIsCleanedInBatches) {
  for (int i = 0; i < 25; ++i) Done(fmt::format("old{}", i));
  Jump(kDay + Millis(120'000));
  Done("young");
  TakeAndDie("in flight");
  EXPECT_EQ(db_.QueryInt("SELECT lockstep.idempotency_clean(10)"), 10);
  EXPECT_EQ(*CleanKeys(*connection_, 10), 15);
  EXPECT_EQ(Keys(), 2);
  EXPECT_EQ(*CleanKeys(*connection_, 10), 0);
}

TEST_F(KeyDesk, CleaningWaitsForNobody) {
  Done("a");
  Done("b");
  Jump(kDay + Millis(120'000));
  auto transaction = connection_->Begin();
  ASSERT_EQ(PostgresStore(*transaction).CheckAndPut(Ask("a"))->outcome, Outcome::kGo);
  const auto cleaner = db_.Connect();
  ASSERT_TRUE(cleaner->Run("SET lock_timeout = '1ms'").ok());
  EXPECT_EQ(*CleanKeys(*cleaner, 10), 1);
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_EQ(OutcomeOf("a"), Outcome::kBusy);
}

// Of keys that nobody asks for again.
TEST_F(KeyDesk, CleaningBoundsWhatAClockGoneWrongHasWritten) {
  Done("k");
  TakeAndDie("in flight");
  Jump(-kDay * 3'650);
  EXPECT_EQ(*CleanKeys(*connection_, 10), 0);
  EXPECT_EQ(Keys("expires_at < clock_timestamp() + interval '25 hours'"), 2);
  EXPECT_EQ(OutcomeOf("in flight"), Outcome::kBusy);
  Jump(kDay + Millis(120'000));
  EXPECT_EQ(*CleanKeys(*connection_, 10), 2);
}

}  // namespace
}  // namespace lockstep::idempotency
