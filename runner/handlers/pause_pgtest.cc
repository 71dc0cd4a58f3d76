// A group that an operator pauses, and lets go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offsets/reset.h"
#include "platform/status.h"
#include "runner/status/health.h"
#include "runner/testing/handler_world.h"

namespace lockstep::runner {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PauseTest : public ::testing::Test {
 protected:
  void Change(bool pause) {
    const auto connection = world_.database.Connect();
    auto transaction = connection->Begin();
    const auto changed = pause ? epochs_.Pause(*transaction, "ada", "the shop moves")
                               : epochs_.Resume(*transaction, "bob", "it has moved");
    ASSERT_TRUE(changed.ok() && *changed) << changed.status();
    ASSERT_TRUE(transaction->Commit().ok());
  }

  GroupWorld world_;
  const state::Epochs epochs_{state::Schema("feed_state"), ConsumerGroup("feed")};
};

TEST_F(PauseTest, NothingIsAppliedFromTheMomentItReturnsUntilItIsResumed) {
  world_.poll =
      Millis(10'000);  // the runner has not looked yet: its batches find out by themselves
  auto group = world_.NewGroup();
  world_.Publish({{.version = 1}});
  ASSERT_TRUE(world_.AwaitDrained());
  Change(true);
  world_.Publish({{.version = 2}});
  ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kPaused; }));
  EXPECT_EQ(world_.Count("SELECT version FROM rm.items"), 1);
  EXPECT_THAT(group->status().reason, HasSubstr("paused by ada"));
  EXPECT_THAT(group->status().reason, HasSubstr("the shop moves"));
  EXPECT_THAT(NotReady(group->status(), Clock::System().Now(), {}), IsEmpty());
  EXPECT_EQ(world_.DeadLetters(), 0);
  EXPECT_EQ(world_.Value("SELECT string_agg(action || ' ' || operator, ', ' ORDER BY id) FROM "
                         "feed_state.audit"),
            "group.paused ada");
}

TEST_F(PauseTest, GoesOnWhereItStoppedAlsoAfterAResetMeanwhile) {
  world_.options.ack_fence = Millis(100);
  const auto group = world_.NewGroup();
  world_.Publish({{.id = "a", .version = 1}});
  ASSERT_TRUE(world_.AwaitDrained());
  Change(true);
  ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kPaused; }));
  world_.Publish({{.id = "a", .version = 2}, {.id = "b", .version = 1}});
  Change(false);
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(world_.Count("SELECT version FROM rm.items WHERE id = 'a'"), 2);

  Change(true);
  ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kPaused; }));
  {
    const auto connection = world_.database.Connect();
    const auto done = offsets::Resets(state::Schema("feed_state"), ConsumerGroup("feed"))
                          .Run(*connection, {.seek = state::SeekTarget::To(Clock::System().Now()),
                                             .operator_name = "ada",
                                             .fence = Millis(100)});
    ASSERT_TRUE(done.ok()) << done.status();
  }
  world_.Publish({{.id = "b", .version = 2}});
  EXPECT_EQ(world_.Value("SELECT seek_state FROM feed_state.consumer_groups"), "wanted");
  Change(false);
  ASSERT_TRUE(world_.Await(
      [&] { return world_.Count("SELECT version FROM rm.items WHERE id = 'b'") == 2; }));
}

TEST_F(PauseTest, WhoIsPausedTwiceIsPausedOnce) {
  const auto group = world_.NewGroup();
  ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kRunning; }));
  Change(true);
  const auto connection = world_.database.Connect();
  auto transaction = connection->Begin();
  EXPECT_FALSE(*epochs_.Pause(*transaction, "eve", ""));
}

}  // namespace
}  // namespace lockstep::runner
