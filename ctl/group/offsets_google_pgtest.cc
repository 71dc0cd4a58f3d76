// Google's emulator can't seek an ordered subscription to a time, and can to a snapshot.
#include <gmock/gmock.h>

#include "ctl/testing/offsets_ctl.h"
#include "tests/support/google_emulator.h"

namespace lockstep::ctl {
namespace {

using ::testing::HasSubstr;

// Skipped where it is not installed.
class OnGooglesEmulator : public OffsetsCtl {
 protected:
  OnGooglesEmulator() : OffsetsCtl(testing::GoogleEmulatorAddress().value_or("")) {}
  void SetUp() override {
    const auto address = testing::GoogleEmulatorAddress();
    if (!address.ok()) GTEST_SKIP() << address.status().message();
    RunAndPublish();
  }
};

TEST_F(OnGooglesEmulator, AResetToATimeSaysInOneSentenceThatItCantAndChangesNothing) {
  for (const std::string& command :
       {"offsets reset feed --to-time " + before_, std::string("offsets reset feed --to-latest"),
        std::string("offsets reset feed --to-earliest --empty"), "replay feed --from " + before_}) {
    const auto refused = world_.Ctl(command + " --reason test --yes");
    EXPECT_EQ(refused.status, 1) << command;
    EXPECT_THAT(refused.err, HasSubstr("this emulator can't seek to a time on ordered "
                                       "subscriptions, so nothing was changed"));
    EXPECT_EQ(Times(refused.err, "\n"), 1) << refused.err;
    EXPECT_EQ(refused.out, "");
  }
  EXPECT_EQ(Epoch(), 1);
  EXPECT_EQ(Right(), 3);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.audit"), 0);
  EXPECT_EQ(world_.transport->admin().ListSubscriptions(world_.project)->size(), 1u);
}

TEST_F(OnGooglesEmulator, ACheckpointIsTakenAndSoughtTo) {
  const auto created = world_.Ctl("checkpoint create feed");
  ASSERT_EQ(created.status, 0) << created.err;
  EXPECT_THAT(world_.Ctl("checkpoint list feed").out, HasSubstr("items.feed.cp-1"));
  world_.Publish("d", 1);
  ASSERT_TRUE(AwaitRight(4));
  // As if the database had lost what came after the checkpoint.
  world_.database.Run("DELETE FROM rm.items WHERE id = 'd'");
  world_.database.Run(
      "DELETE FROM feed_state.inbox WHERE received_at = (SELECT max(received_at) FROM "
      "feed_state.inbox)");
  const auto restored = world_.Ctl("checkpoint restore feed --reason test --yes");
  ASSERT_EQ(restored.status, 0) << restored.err;
  EXPECT_TRUE(AwaitSought(2)) << runner_->Errors();
  EXPECT_TRUE(AwaitRight(4)) << runner_->Errors();
}

}  // namespace
}  // namespace lockstep::ctl
