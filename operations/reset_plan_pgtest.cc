#include <gtest/gtest.h>

#include "operations/reset_plan.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "runner/testing/test_group.h"
#include "tests/support/fake_bus_admin.h"

namespace lockstep::operations {
namespace {

using offsets::ResetMode;
using state::SeekTarget;

// As Google's emulator answers on an ordered subscription.
class CantSeek : public testing::FakeBusAdmin {
 public:
  using FakeBusAdmin::FakeBusAdmin;
  absl::Status SeekToTime(const std::string&, WallTime) override {
    return absl::UnimplementedError("not supported");
  }
};

class PlanReset : public ::testing::Test {
 protected:
  PlanReset() {
    Retain(true);
    const auto group = world_.NewGroup();
    world_.Publish({{.id = "a", .version = 1}, {.id = "b", .version = 1}});
    EXPECT_TRUE(world_.AwaitDrained());
  }
  void Retain(bool on) {
    pubsub::Subscription subscription = *world_.bus.admin().GetSubscription(runner::kSubscription);
    subscription.retain_acked = on;
    EXPECT_TRUE(world_.bus.admin().UpdateSubscription(subscription, {}).ok());
  }
  absl::StatusOr<ResetPlan> Plan(const ResetWish& wish, pubsub::Admin* admin = nullptr) {
    const auto connection = world_.database.Connect();
    return operations::PlanReset(*connection, state::Schema("feed_state"), ConsumerGroup("feed"),
                                 {"rm.items", "rm.counters"}, admin ? *admin : world_.bus.admin(),
                                 wish, Clock::System().Now());
  }
  static WallTime HoursAgo(int hours) { return Clock::System().Now() - std::chrono::hours(hours); }

  runner::GroupWorld world_;
};

TEST_F(PlanReset, SaysWhatComesAgainAndWhatIsEmptied) {
  const auto plan = Plan({.target = SeekTarget::To(HoursAgo(1)), .mode = ResetMode::kEmpty});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->redelivered, 2);
  ASSERT_EQ(plan->emptied.size(), 2u);
  EXPECT_EQ(plan->emptied[0], (std::pair<std::string, int64_t>("rm.items", 2)));
  EXPECT_TRUE(plan->offset.has_value());
  EXPECT_EQ(world_.Count("SELECT epoch FROM feed_state.consumer_groups"), 1);
}

TEST_F(PlanReset, RefusesATargetOutsideRetentionWithTheEarliestPossible) {
  const auto plan = Plan({.target = SeekTarget::To(HoursAgo(24 * 8))});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(MessageOf(plan.status()).find("the earliest possible is"), std::string_view::npos)
      << plan.status();
}

TEST_F(PlanReset, RefusesToReplayWhatIsNotKept) {
  Retain(false);
  for (const ResetWish& wish : {ResetWish{.target = SeekTarget::To(HoursAgo(1))},
                                {.target = {.kind = SeekTarget::Kind::kEarliest}}}) {
    const auto refused = Plan(wish);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(MessageOf(refused.status()).find("keeps no acked messages"), std::string_view::npos)
        << refused.status();
  }
  EXPECT_TRUE(Plan({.target = {.kind = SeekTarget::Kind::kLatest}}).ok());
}

TEST_F(PlanReset, RefusesToEmptyWhatCantBeReplayedUnlessAccepted) {
  ResetWish wish{.target = {.kind = SeekTarget::Kind::kLatest}, .mode = ResetMode::kEmpty};
  const auto refused = Plan(wish);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(MessageOf(refused.status()).find("--accept-missing"), std::string_view::npos);
  wish.accept_missing = true;
  EXPECT_TRUE(Plan(wish).ok());
}

TEST_F(PlanReset, SaysInOneSentenceThatAnEmulatorCantSeekAndChangesNothing) {
  CantSeek admin(world_.bus);
  const auto plan = Plan({.target = SeekTarget::To(HoursAgo(1)), .emulator = true}, &admin);
  ASSERT_TRUE(absl::IsUnimplemented(plan.status())) << plan.status();
  EXPECT_NE(MessageOf(plan.status()).find("nothing was changed"), std::string_view::npos);
  EXPECT_EQ(world_.Count("SELECT epoch FROM feed_state.consumer_groups"), 1);
  EXPECT_EQ(world_.bus.admin().ListSubscriptions("p")->size(), 1u);  // no probe left behind
}

TEST_F(PlanReset, RefusesASnapshotThatIsNotThere) {
  EXPECT_TRUE(absl::IsNotFound(
      Plan({.target = SeekTarget::ToSnapshot("projects/p/snapshots/none")}).status()));
}

}  // namespace
}  // namespace lockstep::operations
