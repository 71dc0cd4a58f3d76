// Two servers in streaming replication: the primary is gone at once, and the standby that is
// promoted has everything (synchronous), or lacks what was committed last (asynchronous, and cut
// off).
#include <gmock/gmock.h>

#include "offsets/reset.h"
#include "postgres/sql_error.h"
#include "runner/testing/cluster_world.h"

namespace lockstep::runner {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Failover : public ClusterWorld {
 protected:
  Failover() { options_.checkpoint_every = Millis(3'600'000); }  // one at the start, and no more

  // Acked, committed, and unknown to the server that takes over. What is lost was published before
  // what is there: the clocks of Pub/Sub's servers differ, and keys are delivered in any order.
  void CommitWhatTheStandbyLacks() {
    bus_.SetClockAhead(Millis(3'600'000));
    Publish();
    ASSERT_TRUE(AwaitModel());
    if (options_.checkpoints) {
      ASSERT_TRUE(AwaitCheckpoints(0));
    }
    ASSERT_TRUE(AwaitAcks());
    cluster_.CutStandby();
    bus_.SetClockAhead(Millis(0));
    Publish();
    ASSERT_TRUE(AwaitModel());
    ASSERT_TRUE(AwaitAcks());
  }
  int64_t Lost() const { return Count("SELECT count(*) FROM rm.items WHERE version = 1"); }
  bool AwaitHalt(const Group& group) const {
    return bus_.Await([&] { return group.status().state == GroupState::kHalted; });
  }
};

TEST_F(Failover, ToALaggingStandbyIsHealedUnderARunningRunner) {
  options_.checkpoints = true;
  cluster_.AddStandby(/*synchronous=*/false);
  const auto group = NewGroup("one");
  CommitWhatTheStandbyLacks();
  cluster_.FailOver();
  EXPECT_TRUE(AwaitModel());
  EXPECT_EQ(Healed(), 1);
  Publish();
  EXPECT_TRUE(AwaitModel());
}

TEST_F(Failover, ToALaggingStandbyIsHealedByARunnerThatStartsAfterIt) {
  options_.checkpoints = true;
  cluster_.AddStandby(/*synchronous=*/false);
  auto group = NewGroup("one");
  CommitWhatTheStandbyLacks();
  group.reset();
  cluster_.FailOver();
  ASSERT_EQ(Lost(), kKeys);
  group = NewGroup("another");
  EXPECT_TRUE(AwaitModel());
  EXPECT_EQ(Healed(), 1);
}

TEST_F(Failover, ToALaggingStandbyHaltsWithoutCheckpointsAndAResetHealsIt) {
  cluster_.AddStandby(/*synchronous=*/false);
  const WallTime before = Clock::System().Now() - Millis(1'000);
  const auto group = NewGroup("one");
  CommitWhatTheStandbyLacks();
  cluster_.FailOver();
  ASSERT_TRUE(AwaitHalt(*group));
  EXPECT_THAT(group->status().reason, HasSubstr("lockstepctl offsets reset feed --to-time"));
  EXPECT_EQ(Lost(), kKeys);

  auto connection = postgres::Connection::Open({.url = cluster_.url()});
  ASSERT_TRUE(connection.ok());
  const auto reset = offsets::Resets(state::Schema("feed_state"), ConsumerGroup("feed"))
                         .Run(**connection, {.seek = state::SeekTarget::To(before),
                                             .operator_name = "ann",
                                             .reason = "the standby lagged",
                                             .fence = Millis(100)});
  ASSERT_TRUE(reset.ok()) << reset.status();
  EXPECT_TRUE(AwaitModel());
}

// Nobody knows what was committed: it is said, and written into the audit, and the group goes on.
TEST_F(Failover, IsToldByARunnerThatStartsAfterItWithoutCheckpoints) {
  cluster_.AddStandby(/*synchronous=*/false);
  auto group = NewGroup("one");
  CommitWhatTheStandbyLacks();
  group.reset();
  cluster_.FailOver();
  ::testing::internal::CaptureStderr();
  group = NewGroup("another");
  EXPECT_TRUE(Await("SELECT count(*) FROM feed_state.audit WHERE action = 'database.moved'", 1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("level=warning msg=\"the database may have gone back.*"
                            "lockstepctl offsets reset feed --to-time"));
  Publish();
  EXPECT_TRUE(Await("SELECT count(*) FROM rm.items WHERE version = 3", kKeys));
  group.reset();
  group = NewGroup("a third");
  Publish();
  EXPECT_TRUE(Await("SELECT count(*) FROM rm.items WHERE version = 4", kKeys));
  EXPECT_EQ(Count("SELECT count(*) FROM feed_state.audit WHERE action = 'database.moved'"), 1);
}

TEST_F(Failover, ToASynchronousStandbyLosesNothing) {
  cluster_.AddStandby(/*synchronous=*/true);
  const auto group = NewGroup("one");
  StartLoad();
  ASSERT_TRUE(Await("SELECT (coalesce(min(version), 0) > 20)::int FROM rm.items", 1));
  cluster_.FailOver();
  const int64_t version = version_;
  ASSERT_TRUE(Await(fmt::format("SELECT (min(version) > {})::int FROM rm.items", version), 1));
  StopLoad();
  EXPECT_TRUE(AwaitModel());
  EXPECT_TRUE(AwaitAcks());
  EXPECT_EQ(group->status().state, GroupState::kRunning);
  EXPECT_EQ(Count("SELECT epoch FROM feed_state.consumer_groups"), 1);
}

}  // namespace
}  // namespace lockstep::runner
