// Backups of the projection's database, taken under load and restored later: on a cluster of its
// own, because a base backup is of a whole cluster.
#include "runner/testing/cluster_world.h"

namespace lockstep::runner {
namespace {

enum class Way { kDump, kBaseBackup, kRecovery };

class RestoredBackup : public ClusterWorld, public ::testing::WithParamInterface<Way> {
 protected:
  void Backup() { GetParam() == Way::kDump ? cluster_.Dump() : cluster_.Backup(); }
  void Restore() {
    if (GetParam() == Way::kDump) return cluster_.RestoreDump();
    cluster_.Restore(GetParam() == Way::kRecovery);
  }

  // A backup amid the load, and enough after it that its loss would show.
  void BackUpUnderLoad() {
    StartLoad();
    if (options_.checkpoints) {
      ASSERT_TRUE(AwaitCheckpoints(0));
    }
    ASSERT_TRUE(Await("SELECT (coalesce(min(version), 0) > 3)::int FROM rm.items", 1));
    Backup();
    const int64_t version = version_;
    if (options_.checkpoints) {
      ASSERT_TRUE(AwaitCheckpoints(
          Count("SELECT coalesce(max(number), 0) FROM feed_state.checkpoints") + 1));
    }
    ASSERT_TRUE(Await(fmt::format("SELECT (min(version) > {})::int FROM rm.items", version), 1));
    StopLoad();
    ASSERT_TRUE(AwaitModel());
    ASSERT_TRUE(AwaitAcks());
  }
};

TEST_P(RestoredBackup, IsHealedWithNoHelp) {
  options_.checkpoints = true;
  auto group = NewGroup("one");
  BackUpUnderLoad();
  group.reset();
  Restore();
  ASSERT_LT(Count("SELECT min(version) FROM rm.items"), version_);
  group = NewGroup("another");
  EXPECT_TRUE(AwaitModel());
  EXPECT_EQ(Healed(), 1);
  Publish();
  EXPECT_TRUE(AwaitModel());
}

TEST_P(RestoredBackup, UnderARunningRunnerIsHealedWithNoHelp) {
  options_.checkpoints = true;
  const auto group = NewGroup("one");
  BackUpUnderLoad();
  Restore();
  EXPECT_TRUE(AwaitModel());
  EXPECT_GE(Healed(), 1);
}

// The control: the tests above must be known to bite.
TEST_P(RestoredBackup, WithoutCheckpointsLosesWhatWasAckedSince) {
  options_.checkpoints = false;
  auto group = NewGroup("one");
  BackUpUnderLoad();
  group.reset();
  Restore();
  group = NewGroup("another");
  publisher_->Publish(kTopic, {TestEvent{.id = "after"}.Message()}, [](const auto&) {});
  ASSERT_TRUE(Await("SELECT count(*) FROM rm.items WHERE id = 'after'", 1));
  EXPECT_EQ(Count(fmt::format("SELECT count(*) FROM rm.items WHERE version = {}", version_.load())),
            0);
}

INSTANTIATE_TEST_SUITE_P(Of, RestoredBackup,
                         ::testing::Values(Way::kBaseBackup, Way::kRecovery, Way::kDump),
                         [](const auto& test) {
                           switch (test.param) {
                             case Way::kBaseBackup:
                               return "pg_basebackup";
                             case Way::kRecovery:
                               return "pg_basebackup_with_recovery";
                             case Way::kDump:
                               break;
                           }
                           return "a_dump";
                         });

}  // namespace
}  // namespace lockstep::runner
