#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "platform/status.h"
#include "postgres/migrator.h"
#include "sql/migrations.h"
#include "state/groups/epochs.h"
#include "tests/support/test_database.h"

namespace lockstep::state {
namespace {

using ::testing::HasSubstr;

class EpochTest : public ::testing::Test {
 protected:
  EpochTest() : connection_(database_.Connect()), epochs_(schema_, ConsumerGroup("feed")) {
    EXPECT_TRUE(postgres::Migrator(*connection_, "st", sql::StateMigrations()).Up().ok());
  }
  GroupEpoch Make() { return *epochs_.LoadOrCreate(*connection_, "sub", {}, "test"); }

  testing::TestDatabase database_;
  Schema schema_{"st"};
  std::unique_ptr<postgres::Connection> connection_;
  Epochs epochs_;
};

TEST_F(EpochTest, BeginsWithTheFirstStartAndIsFoundByTheNext) {
  EXPECT_TRUE(absl::IsNotFound(epochs_.Load(*connection_).status()));
  const GroupEpoch first = Make();
  EXPECT_TRUE(first.created);
  EXPECT_EQ(first.epoch, 1);
  EXPECT_EQ(first.slot, 1);
  const GroupEpoch again = Make();
  EXPECT_FALSE(again.created);
  EXPECT_EQ(again.token, first.token);
  EXPECT_EQ(again.generation, first.generation);
}

TEST_F(EpochTest, GivesEachGroupAGenerationOfItsOwn) {
  const Epochs other(schema_, ConsumerGroup("other"));
  EXPECT_NE(Make().generation, other.LoadOrCreate(*connection_, "sub", {}, "test")->generation);
}

TEST_F(EpochTest, LetsABatchThroughUnderItsOwnEpoch) {
  const GroupEpoch under = Make();
  auto transaction = epochs_.Begin(*connection_, under);
  ASSERT_TRUE(transaction.ok());
  EXPECT_TRUE(transaction->Commit().ok());
}

TEST_F(EpochTest, RefusesABatchOfAnOlderEpochAndOfARestoredCounter) {
  const GroupEpoch under = Make();
  database_.Run("UPDATE st.consumer_groups SET epoch = epoch + 1");
  EXPECT_TRUE(IsStaleEpoch(epochs_.Begin(*connection_, under).status()));
  // The same number again, as a restored backup would have it: the token tells.
  database_.Run("UPDATE st.consumer_groups SET epoch = 1, epoch_token = gen_random_uuid()");
  EXPECT_TRUE(IsStaleEpoch(epochs_.Begin(*connection_, under).status()));
}

TEST_F(EpochTest, MakesABatchWaitForAChangeAndSeeIt) {
  const GroupEpoch under = Make();
  const auto changer = database_.Connect();
  auto change = changer->Begin();
  ASSERT_TRUE(epochs_.LockExclusively(*change).ok());
  auto batch =
      std::async(std::launch::async, [&] { return epochs_.Begin(*connection_, under).status(); });
  // It waits at the lock: then the change commits.
  while (database_.QueryInt("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
    std::this_thread::yield();
  }
  ASSERT_TRUE(change->Execute("UPDATE st.consumer_groups SET epoch = 2").ok());
  ASSERT_TRUE(change->Commit().ok());
  EXPECT_TRUE(IsStaleEpoch(batch.get()));
}

TEST_F(EpochTest, IsClaimedForItsSeekByOneOnly) {
  const GroupEpoch under =
      *epochs_.LoadOrCreate(*connection_, "sub", SeekTarget::ToSnapshot("s"), "test");
  EXPECT_FALSE(under.seek_done);
  EXPECT_TRUE(*epochs_.ClaimSeek(*connection_, under, "one", Millis(60'000)));
  EXPECT_FALSE(*epochs_.ClaimSeek(*connection_, under, "two", Millis(60'000)));
  // Its owner died: another takes over.
  EXPECT_TRUE(*epochs_.ClaimSeek(*connection_, under, "two", Millis(0)));
  ASSERT_TRUE(epochs_.MarkSeekDone(*connection_, under, "one").ok());
  EXPECT_FALSE(epochs_.Load(*connection_)->seek_done);  // no longer its to say
  ASSERT_TRUE(epochs_.MarkSeekDone(*connection_, under, "two").ok());
  EXPECT_TRUE(epochs_.Load(*connection_)->seek_done);
}

TEST_F(EpochTest, SaysHowAMissingSchemaIsMade) {
  const absl::Status missing = Schema("nowhere").Check(*connection_);
  EXPECT_THAT(std::string(MessageOf(missing)),
              HasSubstr("lockstepctl migrate up --set state --schema nowhere"));
  EXPECT_TRUE(schema_.Check(*connection_).ok());
}

}  // namespace
}  // namespace lockstep::state
