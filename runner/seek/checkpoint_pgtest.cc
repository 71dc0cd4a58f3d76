// A database that went back is recognised and healed; without checkpoints the loss shows.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "platform/status.h"
#include "runner/testing/test_group.h"
#include "state/positions/checkpoints.h"

namespace lockstep::runner {
namespace {

constexpr int kItems = 8;

class Restore : public ::testing::Test {
 protected:
  Restore() : dump_(std::filesystem::temp_directory_path() / (world_.database.name() + ".sql")) {
    world_.options.ack_fence = Millis(100);
    world_.options.checkpoints = true;
    world_.options.checkpoint_every = Millis(100);
  }
  ~Restore() override { std::filesystem::remove(dump_); }

  void PublishVersion(int64_t version) {
    std::vector<TestEvent> events;
    for (int k = 0; k < kItems; ++k)
      events.push_back({.id = fmt::format("k{}", k), .version = version});
    world_.Publish(events);
  }
  void Backup() {
    ASSERT_EQ(std::system(fmt::format("pg_dump --no-owner --file='{}' '{}'", dump_.string(),
                                      world_.database.url())
                              .c_str()),
              0);
  }
  // In one transaction, as seen by whoever connects afterwards; nobody stays connected.
  void PutBack() {
    ASSERT_EQ(
        std::system(fmt::format("psql -q -X -v ON_ERROR_STOP=1 -1 -o /dev/null "
                                "-c \"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                                "application_name LIKE 'lockstep-runner%' AND datname = "
                                "current_database()\" -c 'DROP SCHEMA rm, feed_state CASCADE' "
                                "-f '{}' '{}' 2>/dev/null",
                                dump_.string(), world_.database.url())
                        .c_str()),
        0);
  }
  bool AwaitCheckpoint(int64_t past) {
    return world_.Await([&] { return NewestCheckpoint() > past; });
  }
  int64_t NewestCheckpoint() {
    return world_.Count(
        "SELECT coalesce(max(number), 0) FROM feed_state.checkpoints WHERE epoch > 0");
  }
  // Every key at this version, each event counted once.
  bool AwaitModel(int64_t version) {
    return world_.Await([&] {
      return world_.Count(fmt::format("SELECT count(*) FROM rm.items WHERE version = {}",
                                      version)) == kItems &&
             world_.Count(fmt::format("SELECT count(*) FROM rm.counters WHERE n = {}", version)) ==
                 kItems;
    });
  }
  int64_t Healings() {
    return world_.Count("SELECT count(*) FROM feed_state.audit WHERE action = 'checkpoint.healed'");
  }

  // And forgets every checkpoint that was taken since.
  void HealFromAnOldCheckpoint() {
    group_ = world_.NewGroup();
    PublishVersion(1);
    ASSERT_TRUE(AwaitModel(1));
    ASSERT_TRUE(AwaitCheckpoint(0));
    Backup();
    const int64_t at_backup = NewestCheckpoint();
    PublishVersion(2);
    ASSERT_TRUE(AwaitModel(2));
    ASSERT_TRUE(AwaitCheckpoint(at_backup + 1));
    group_.reset();
    PutBack();
    world_.database.Run(
        "UPDATE feed_state.checkpoints SET taken_at = taken_at - interval '40 minutes'");
    group_ = world_.NewGroup("another");
    ASSERT_TRUE(AwaitModel(2));
    const std::string since = "FROM feed_state.checkpoints WHERE epoch > 1";
    ASSERT_TRUE(world_.Await([&] { return world_.Count("SELECT count(*) " + since) > 1; }));
    group_.reset();
    ASSERT_EQ(Healings(), 1);
    world_.database.Run("DELETE " + since);
  }

  GroupWorld world_;
  const std::filesystem::path dump_;
  std::unique_ptr<Group> group_;
};

TEST_F(Restore, IsRecognisedAtStartAndHealedOnce) {
  auto group = world_.NewGroup();
  PublishVersion(1);
  ASSERT_TRUE(AwaitCheckpoint(0));
  PublishVersion(2);
  Backup();
  const int64_t at_backup = NewestCheckpoint();
  PublishVersion(3);
  ASSERT_TRUE(AwaitModel(3));
  ASSERT_TRUE(AwaitCheckpoint(at_backup + 1));
  group.reset();
  PutBack();
  group = world_.NewGroup("another");
  EXPECT_TRUE(AwaitModel(3));
  EXPECT_EQ(Healings(), 1);
  PublishVersion(4);
  EXPECT_TRUE(AwaitModel(4));
  group.reset();
  group = world_.NewGroup("third");
  PublishVersion(5);
  EXPECT_TRUE(AwaitModel(5));
  EXPECT_EQ(Healings(), 1);
}

TEST_F(Restore, WhileTheRunnerRunsIsRecognisedByWhatItHasCommitted) {
  world_.options.checkpoint_every = std::chrono::hours(1);  // no newer snapshot tells it
  const auto group = world_.NewGroup();
  PublishVersion(1);
  ASSERT_TRUE(AwaitModel(1));
  ASSERT_TRUE(AwaitCheckpoint(0));
  Backup();
  PublishVersion(2);
  ASSERT_TRUE(AwaitModel(2));
  PutBack();
  EXPECT_TRUE(AwaitModel(2));
  EXPECT_GE(Healings(), 1);
}

// The control: the tests above must be known to bite.
TEST_F(Restore, WithoutCheckpointsLosesWhatWasAckedSince) {
  world_.options.checkpoints = false;
  auto group = world_.NewGroup();
  PublishVersion(1);
  ASSERT_TRUE(AwaitModel(1));
  Backup();
  PublishVersion(2);
  ASSERT_TRUE(AwaitModel(2));
  ASSERT_TRUE(world_.AwaitDrained());
  group.reset();
  PutBack();
  group = world_.NewGroup("another");
  world_.Publish({{.id = "after", .version = 1}});
  ASSERT_TRUE(world_.Await(
      [&] { return world_.Count("SELECT count(*) FROM rm.items WHERE id = 'after'") == 1; }));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items WHERE version = 2"), 0);
}

TEST_F(Restore, WithoutCheckpointsNobodyIsWaitedFor) {
  world_.options.checkpoints = false;
  const auto another = world_.database.Connect();
  const state::Schema schema("feed_state");
  const state::Checkpoints checkpoints(schema, ConsumerGroup("feed"));
  ASSERT_TRUE(*checkpoints.TryLock(*another));
  const auto group = world_.NewGroup();
  PublishVersion(1);
  EXPECT_TRUE(AwaitModel(1)) << group->status().reason;
}

TEST_F(Restore, WhoeverIsStoppedWithTheLockLosesIt) {
  const auto connection = world_.database.Connect();
  const auto timeout = [&]() -> std::string {
    return std::string(connection->Execute("SHOW idle_session_timeout")->Text(0, 0));
  };
  const state::Schema schema("feed_state");
  const state::Checkpoints checkpoints(schema, ConsumerGroup("feed"));
  ASSERT_TRUE(*checkpoints.TryLock(*connection));
  EXPECT_EQ(timeout(), "30s");
  const auto another = world_.database.Connect();
  EXPECT_FALSE(*checkpoints.TryLock(*another));
  EXPECT_EQ(another->Execute("SHOW idle_session_timeout")->Text(0, 0), "0");
  ASSERT_TRUE(checkpoints.Unlock(*connection).ok());
  EXPECT_EQ(timeout(), "0");
}

TEST_F(Restore, NeedsNoMoreCheckpointsThanAreKept) {
  world_.options.checkpoint_keep = Millis(300);
  const auto group = world_.NewGroup();
  ASSERT_TRUE(AwaitCheckpoint(6));
  const auto first = state::Checkpoints::SnapshotName(kSubscription, 1);
  EXPECT_TRUE(absl::IsNotFound(world_.bus.admin().GetSnapshot(first).status()));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.checkpoints WHERE number = 1"), 0);
  EXPECT_EQ(Healings(), 0);
}

TEST_F(Restore, NeedsOneCheckpointAnHourOfThoseThatAreOlder) {
  auto group = world_.NewGroup();
  ASSERT_TRUE(AwaitCheckpoint(3));
  group.reset();
  world_.database.Run(
      "UPDATE feed_state.checkpoints SET taken_at = date_trunc('hour', now()) - interval '3 hours' "
      "+ number * interval '1 minute' WHERE number <= 3");
  group = world_.NewGroup("another");
  EXPECT_TRUE(world_.Await([&] {
    return world_.Value(
               "SELECT string_agg(number::text, ',') FROM feed_state.checkpoints "
               "WHERE number <= 3") == "1";
  }));
  const auto second = state::Checkpoints::SnapshotName(kSubscription, 2);
  EXPECT_TRUE(absl::IsNotFound(world_.bus.admin().GetSnapshot(second).status()));
  EXPECT_EQ(Healings(), 0);
}

// It would be healed from them alone, and what belongs to others stands for none of them.
TEST_F(Restore, NeedsThoseOfItsOwnEpochAndSubscriptionAndAllThatAreYoung) {
  auto group = world_.NewGroup();
  ASSERT_TRUE(AwaitCheckpoint(5));
  group.reset();
  world_.database.Run(
      "UPDATE feed_state.checkpoints SET taken_at = date_trunc('hour', now()) - interval '3 hours' "
      "+ number * interval '1 minute', epoch = CASE WHEN number = 5 THEN epoch ELSE 99 END, "
      "subscription = CASE WHEN number = 1 THEN 'another' ELSE subscription END WHERE number <= 5");
  const int64_t young = NewestCheckpoint();
  group = world_.NewGroup("another");
  ASSERT_TRUE(AwaitCheckpoint(young + 4)) << "so often it was seen to";
  group.reset();
  EXPECT_EQ(world_.Value("SELECT string_agg(number::text, ',' ORDER BY number) FROM "
                         "feed_state.checkpoints WHERE number <= 5"),
            "1,2,4,5");
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.checkpoints WHERE number > 5 AND epoch "
                         "> 0"),
            NewestCheckpoint() - 5);
}

// Whoever comes back to a moment in a long pause needs the last one before it; an epoch that began
// with an older one may come back to its beginning.
TEST_F(Restore, NeedsTheLastOneBeforeAPauseAndTheOneThatItsEpochBeganWith) {
  world_.options.checkpoint_keep = std::chrono::minutes(30);
  group_ = world_.NewGroup();
  ASSERT_TRUE(AwaitCheckpoint(3));
  group_.reset();
  const int64_t last = NewestCheckpoint();
  world_.database.Run(
      "UPDATE feed_state.checkpoints SET taken_at = taken_at - interval '40 minutes';"
      "UPDATE feed_state.consumer_groups SET seek_kind = 'snapshot', seek_snapshot = '" +
      state::Checkpoints::SnapshotName(kSubscription, 1) + "'");
  group_ = world_.NewGroup("another");
  ASSERT_TRUE(AwaitCheckpoint(last + 2));
  group_.reset();
  EXPECT_EQ(world_.Value(fmt::format("SELECT string_agg(number::text, ',' ORDER BY number) FROM "
                                     "feed_state.checkpoints WHERE number <= {}",
                                     last)),
            fmt::format("1,{}", last));
}

// It goes back twice: the second time to the moment after it was healed, when its epoch had a Seek
// and no checkpoint yet. What it was healed from was old then.
TEST_F(Restore, IsHealedAgainFromWhatItWasHealedFromHoweverOldThatIs) {
  world_.options.checkpoint_keep = std::chrono::minutes(30);
  HealFromAnOldCheckpoint();
  group_ = world_.NewGroup("third");
  EXPECT_TRUE(world_.Await([&] { return Healings() == 2; })) << group_->status().reason;
  PublishVersion(3);
  EXPECT_TRUE(AwaitModel(3)) << group_->status().reason;
}

TEST_F(Restore, SaysThatWhatItsEpochBeganWithIsGone) {
  world_.options.checkpoint_keep = std::chrono::minutes(30);
  HealFromAnOldCheckpoint();
  const std::string began = world_.Value("SELECT seek_snapshot FROM feed_state.consumer_groups");
  ASSERT_TRUE(world_.bus.admin().DeleteSnapshot(began).ok()) << began;
  group_ = world_.NewGroup("third");
  ASSERT_TRUE(world_.Await([&] { return group_->status().state == GroupState::kHalted; }));
  EXPECT_NE(group_->status().reason.find(began + ", is gone"), std::string::npos)
      << group_->status().reason;
}

TEST_F(Restore, IsHealedFromAnOlderCheckpointWhereTheNewestIsNoLongerKept) {
  auto group = world_.NewGroup();
  PublishVersion(1);
  ASSERT_TRUE(AwaitCheckpoint(1));
  PublishVersion(2);
  Backup();
  const int64_t at_backup = NewestCheckpoint();
  PublishVersion(3);
  ASSERT_TRUE(AwaitModel(3));
  ASSERT_TRUE(AwaitCheckpoint(at_backup + 1));
  group.reset();
  PutBack();
  ASSERT_TRUE(
      world_.bus.admin()
          .DeleteSnapshot(state::Checkpoints::SnapshotName(kSubscription, NewestCheckpoint()))
          .ok());
  group = world_.NewGroup("another");
  EXPECT_TRUE(AwaitModel(3)) << group->status().reason;
  EXPECT_EQ(Healings(), 1);
}

// It died between the two, and nothing of this epoch is recorded to heal from.
TEST_F(Restore, IsNotSuspectedWhenATakerDiedBeforeItRecordedItsFirstSnapshot) {
  auto group = world_.NewGroup();
  PublishVersion(1);
  ASSERT_TRUE(AwaitCheckpoint(1));
  ASSERT_TRUE(AwaitModel(1));
  group.reset();
  world_.database.Run(
      "DELETE FROM feed_state.checkpoints WHERE number < "
      "(SELECT max(number) FROM feed_state.checkpoints);"
      "UPDATE feed_state.checkpoints SET epoch = 0");
  group = world_.NewGroup("another");
  PublishVersion(2);
  EXPECT_TRUE(AwaitModel(2)) << group->status().reason;
  EXPECT_EQ(Healings(), 0);
  EXPECT_TRUE(AwaitCheckpoint(0)) << "it takes them again";
}

TEST_F(Restore, OfABackupWithoutACheckpointHaltsAndSaysWhatToDo) {
  auto group = world_.NewGroup();
  PublishVersion(1);
  ASSERT_TRUE(AwaitCheckpoint(0));
  ASSERT_TRUE(AwaitModel(1));
  group.reset();
  world_.database.Run("DELETE FROM feed_state.checkpoints");
  group = world_.NewGroup("another");
  ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kHalted; }));
  const std::string way_on = "or delete " + state::Checkpoints::SnapshotName(kSubscription, 1);
  EXPECT_NE(group->status().reason.find(way_on), std::string::npos) << group->status().reason;
}

TEST_F(Restore, OfABackupOlderThanItsSnapshotsIsRefused) {
  auto group = world_.NewGroup();
  PublishVersion(1);
  ASSERT_TRUE(AwaitCheckpoint(0));
  Backup();
  const int64_t at_backup = NewestCheckpoint();
  ASSERT_TRUE(AwaitCheckpoint(at_backup + 1));
  group.reset();
  PutBack();
  for (int64_t n = 1; n <= at_backup; ++n) {
    world_.bus.admin()
        .DeleteSnapshot(state::Checkpoints::SnapshotName(kSubscription, n))
        .IgnoreError();
  }
  group = world_.NewGroup("another");
  ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kHalted; }));
  EXPECT_NE(group->status().reason.find("too old to be healed"), std::string::npos)
      << group->status().reason;
}

}  // namespace
}  // namespace lockstep::runner
