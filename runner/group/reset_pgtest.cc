// Resets while groups run, on the bus in memory: who seeks, when, and what an old epoch can't do.
#include <gtest/gtest.h>

#include <latch>

#include "offsets/reset.h"
#include "platform/status.h"
#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

using offsets::ResetMode;
using offsets::ResetRequest;

class Reset : public ::testing::Test {
 protected:
  Reset() {
    world_.options.ack_fence = Millis(100);
    world_.options.seek_takeover = Millis(300);
    pubsub::Subscription subscription = *world_.bus.admin().GetSubscription(kSubscription);
    subscription.retain_acked = true;
    EXPECT_TRUE(
        world_.bus.admin().UpdateSubscription(subscription, {"retain_acked_messages"}).ok());
  }

  ResetRequest To(WallTime time, ResetMode mode = ResetMode::kKeep) const {
    return {.seek = state::SeekTarget::To(time),
            .mode = mode,
            .tables = {"rm.items", "rm.counters"},
            .operator_name = "ada",
            .reason = "a test",
            .fence = Millis(200),
            .takeover = Millis(300),
            .lock_try = Millis(100)};
  }
  offsets::ResetDone Run(const ResetRequest& request) {
    const auto connection = world_.database.Connect();
    const auto done = resets_.Run(*connection, request);
    EXPECT_TRUE(done.ok()) << done.status();
    return done.ok() ? *done : offsets::ResetDone{};
  }
  bool AwaitSought(int64_t epoch) {
    return world_.Await([&] {
      return world_.Count("SELECT epoch FROM feed_state.consumer_groups") == epoch &&
             world_.Value("SELECT seek_state FROM feed_state.consumer_groups") == "done";
    });
  }
  bool AwaitVersion(const std::string& id, int64_t version) {
    return world_.Await([&] {
      return world_.Count("SELECT coalesce(max(version), 0) FROM rm.items WHERE id = '" + id +
                          "'") == version;
    });
  }

  GroupWorld world_;
  const offsets::Resets resets_{state::Schema("feed_state"), ConsumerGroup("feed")};
};

TEST_F(Reset, EmptiesAndReplaysUnderANewGeneration) {
  const auto group = world_.NewGroup();
  world_.Publish({{.id = "a", .version = 1}, {.id = "a", .version = 2}, {.id = "b", .version = 1}});
  ASSERT_TRUE(world_.AwaitDrained());
  world_.database.Run("UPDATE rm.items SET a = 'spoilt'");

  const auto done = Run(To(WallTime(), ResetMode::kEmpty));
  EXPECT_EQ(done.epoch, 2);
  ASSERT_TRUE(AwaitSought(2));
  ASSERT_TRUE(AwaitVersion("a", 2));
  ASSERT_TRUE(AwaitVersion("b", 1));
  EXPECT_EQ(world_.Value("SELECT a FROM rm.items WHERE id = 'a'"), "x");
  EXPECT_EQ(world_.Count("SELECT n FROM rm.counters WHERE id = 'a'"), 2);
  EXPECT_EQ(world_.Count("SELECT generation FROM feed_state.slots"), done.generation);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.retired_generations"), 1);
  EXPECT_EQ(world_.Value("SELECT operator || ': ' || reason FROM feed_state.audit"), "ada: a test");
  EXPECT_EQ(world_.bus.seeks().size(), 1u);
}

TEST_F(Reset, WithoutEmptyingCountsNothingTwice) {
  const auto group = world_.NewGroup();
  world_.Publish({{.id = "a", .version = 1}, {.id = "a", .version = 2}});
  ASSERT_TRUE(world_.AwaitDrained());
  Run(To(WallTime()));
  ASSERT_TRUE(AwaitSought(2));
  ASSERT_TRUE(world_.Await([&] { return group->status().counts.duplicates >= 2; }));
  EXPECT_EQ(world_.Count("SELECT n FROM rm.counters WHERE id = 'a'"), 2);
}

TEST_F(Reset, ForwardLeavesOutWhatWasPublishedBefore) {
  const auto latest = [] { return Clock::System().Now(); };
  {
    const auto group = world_.NewGroup();
    ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kRunning; }));
  }
  world_.Publish({{.id = "a", .version = 1}});
  Run(To(latest()));
  world_.Publish({{.id = "b", .version = 1}});
  const auto group = world_.NewGroup();
  ASSERT_TRUE(AwaitVersion("b", 1));
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items"), 1);
}

// A Seek of the service takes effect by and by: what it leaves out may still come.
TEST_F(Reset, WhatComesFromBeforeItsTimeIsAckedUnapplied) {
  {
    const auto group = world_.NewGroup();
    ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kRunning; }));
  }
  world_.Publish({{.id = "a", .version = 1}});
  Run(To(Clock::System().Now()));
  const auto group = world_.NewGroup();
  ASSERT_TRUE(AwaitSought(2));
  ASSERT_TRUE(world_.bus.admin().SeekToTime(kSubscription, WallTime()).ok());
  world_.Publish({{.id = "b", .version = 1}});
  ASSERT_TRUE(AwaitVersion("b", 1));
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items"), 1);
}

TEST_F(Reset, ExactlyOneOfSeveralSeeks) {
  const auto one = world_.NewGroup("one");
  const auto two = world_.NewGroup("two");
  const auto three = world_.NewGroup("three");
  world_.Publish({{.id = "a", .version = 1}});
  ASSERT_TRUE(world_.AwaitDrained());
  for (int epoch = 2; epoch <= 4; ++epoch) {
    Run(To(WallTime(), ResetMode::kEmpty));
    ASSERT_TRUE(AwaitSought(epoch));
    ASSERT_TRUE(AwaitVersion("a", 1));
    EXPECT_EQ(world_.bus.seeks().size(), static_cast<size_t>(epoch - 1));
  }
}

TEST_F(Reset, WaitsForABatchUnderWayAndSaysForWhom) {
  {
    const auto group = world_.NewGroup();
    ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kRunning; }));
  }
  const auto connection = world_.database.Connect();
  const auto holder = world_.database.Connect();
  const state::Epochs epochs(state::Schema("feed_state"), ConsumerGroup("feed"));
  const auto under = epochs.Load(*holder);
  ASSERT_TRUE(under.ok());
  std::optional<postgres::Transaction> batch(*epochs.Begin(*holder, *under));
  std::vector<std::string> heard;
  const auto done = resets_.Run(*connection, To(WallTime()), [&](const auto& holders) {
    heard = holders;
    EXPECT_TRUE(!batch || batch->Commit().ok());
    batch.reset();
  });
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_NE(heard[0].find(fmt::format("pid {}", holder->backend_pid())), std::string::npos)
      << heard[0];
}

TEST_F(Reset, ABatchOfTheOldEpochDoesNotCommit) {
  const auto group = world_.NewGroup();
  ASSERT_TRUE(world_.Await([&] { return group->status().state == GroupState::kRunning; }));
  const auto connection = world_.database.Connect();
  const state::Epochs epochs(state::Schema("feed_state"), ConsumerGroup("feed"));
  const auto under = epochs.Load(*connection);
  ASSERT_TRUE(under.ok());
  Run(To(WallTime()));
  EXPECT_TRUE(state::IsStaleEpoch(epochs.Begin(*connection, *under).status()));
}

// The performer is stopped between claim and Seek; another takes over; then it wakes.
TEST_F(Reset, APerformerThatWakesLateDoesNotSeek) {
  std::latch claimed(1), wake(1);
  world_.seek_hooks.after_claim = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    claimed.count_down();
    wake.wait();
  };
  auto sleeper = world_.NewGroup("sleeper");
  world_.Publish({{.id = "a", .version = 1}});
  ASSERT_TRUE(world_.AwaitDrained());
  Run(To(WallTime(), ResetMode::kEmpty));
  claimed.wait();
  auto other = world_.NewGroup("other");
  ASSERT_TRUE(AwaitSought(2));
  ASSERT_TRUE(AwaitVersion("a", 1));
  Run(To(Clock::System().Now()));
  ASSERT_TRUE(AwaitSought(3));
  wake.count_down();
  world_.Publish({{.id = "b", .version = 1}});
  ASSERT_TRUE(AwaitVersion("b", 1));
  ASSERT_TRUE(world_.Await([&] { return sleeper->status().state == GroupState::kRunning; }));
  EXPECT_EQ(world_.bus.seeks().size(), 2u);
}

// Worse: it is stopped after its last look, so that its Seek goes out under a later epoch.
TEST_F(Reset, ASeekThatGoesOutLateIsRepaired) {
  std::latch claimed(1), wake(1);
  world_.seek_hooks.before_seek = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    claimed.count_down();
    wake.wait();
  };
  auto sleeper = world_.NewGroup("sleeper");
  world_.Publish({{.id = "a", .version = 1}});
  ASSERT_TRUE(world_.AwaitDrained());
  Run(To(Clock::System().Now()));  // forward: the harmful one
  claimed.wait();
  world_.options.lanes = 1;
  // Nobody else runs, so the wanted replay of epoch 3 is still to come when the late Seek is sent.
  auto other = world_.NewGroup("other");
  Run(To(WallTime(), ResetMode::kEmpty));
  ASSERT_TRUE(AwaitSought(3));
  wake.count_down();
  ASSERT_TRUE(AwaitSought(4));
  ASSERT_TRUE(AwaitVersion("a", 1));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.audit WHERE action = 'seek.repaired'"),
            1);
}

// The second one's target is a little later than the first one's, and far behind what was applied.
TEST_F(Reset, TwoInARowToTheEarliestForgetNoKey) {
  {
    const auto group = world_.NewGroup();
    world_.Publish({{.id = "a", .version = 2, .payload = Merge("b", "2")}});
    ASSERT_TRUE(world_.AwaitDrained());
  }
  Run(To(WallTime()));
  Run(To(WallTime() + std::chrono::seconds(3)));
  EXPECT_EQ(world_.Count("SELECT settled_version FROM feed_state.key_state"), 2);
}

// Forward twice and back to the beginning: a version that was applied between two that were left
// out is settled still, so that what follows it need not wait.
TEST_F(Reset, ForwardAndBackKeepsWhatIsSettled) {
  const auto merge = [](int64_t version) {
    return TestEvent{.id = "a", .version = version, .payload = Merge("b", "x")};
  };
  auto group = world_.NewGroup();
  world_.Publish({merge(1)});
  ASSERT_TRUE(world_.AwaitDrained());
  group.reset();
  world_.Publish({merge(2), merge(3)});
  Run(To(Clock::System().Now()));
  group = world_.NewGroup();
  ASSERT_TRUE(AwaitSought(2));
  world_.Publish({merge(4)});
  ASSERT_TRUE(AwaitVersion("a", 4));
  Run(To(Clock::System().Now()));
  ASSERT_TRUE(AwaitSought(3));
  Run(To(WallTime()));
  ASSERT_TRUE(AwaitSought(4));
  world_.Publish({merge(5)});
  ASSERT_TRUE(AwaitVersion("a", 5));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.parked"), 0);
}

TEST_F(Reset, ForwardEndsTheWaitForWhatItLeavesOut) {
  auto group = world_.NewGroup();
  world_.Publish({{.id = "a", .version = 1, .payload = Merge("a", "1")},
                  {.id = "a", .version = 3, .payload = Merge("b", "3")}});
  ASSERT_TRUE(world_.AwaitDrained());
  ASSERT_EQ(world_.Count("SELECT count(*) FROM feed_state.parked"), 1);
  group.reset();
  const auto merge = [](int64_t version) {
    return TestEvent{.id = "a", .version = version, .payload = Merge("a", "x")};
  };
  world_.Publish({merge(4), merge(5)});
  Run(To(Clock::System().Now()));
  group = world_.NewGroup();
  ASSERT_TRUE(AwaitVersion("a", 3));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.parked"), 0);
  world_.Publish({merge(6), merge(8)});
  ASSERT_TRUE(AwaitVersion("a", 6));
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.parked"), 1) << "this gap is one";
}

// Pub/Sub's clock is ahead of the database's.
TEST_F(Reset, OverwritesWhateverWasCommittedBeforeIt) {
  const auto group = world_.NewGroup();
  world_.bus.SetClockAhead(Millis(600'000));
  world_.Publish({{.id = "a"}});
  ASSERT_TRUE(world_.AwaitDrained());
  const std::string committed = world_.Value("SELECT max(publish_time) FROM feed_state.offsets");
  Run(To(WallTime(), ResetMode::kOverwrite));
  EXPECT_EQ(
      world_.Value("SELECT overwrite_until > '" + committed + "' FROM feed_state.consumer_groups"),
      "t");
}

// The fence of a Seek is a time of the database: an hour ahead, once its clock went back by one.
TEST_F(Reset, DoesNotWaitForAClockThatWentBack) {
  world_.options.seek_takeover = Millis(1'000);
  auto group = world_.NewGroup();
  world_.Publish({{.id = "a"}});
  ASSERT_TRUE(world_.AwaitDrained());
  group.reset();
  Run(To(WallTime()));
  world_.database.Run(
      "UPDATE feed_state.consumer_groups SET seek_not_before = seek_not_before + interval '1 "
      "hour'");
  group = world_.NewGroup();
  EXPECT_TRUE(AwaitSought(2)) << group->status().reason;
}

// What the inbox has forgotten comes again as if it were new, below what is applied.
TEST_F(Reset, WhatItBringsBackIsNotCountedAsGoneBack) {
  const auto group = world_.NewGroup();
  world_.Publish({{.id = "a", .version = 1}, {.id = "a", .version = 2}});
  ASSERT_TRUE(world_.AwaitDrained());
  world_.database.Run("DELETE FROM feed_state.inbox");
  Run(To(WallTime()));
  EXPECT_TRUE(world_.Await([&] { return group->status().counts.superseded >= 1; }));
  EXPECT_EQ(group->status().counts.went_back, 0);
}

TEST_F(Reset, OverwritingCountsNothingAsWaitingTwice) {
  const auto group = world_.NewGroup();
  world_.Publish({{.id = "a", .version = 1},
                  {.id = "a", .version = 2, .payload = "bad"},
                  {.id = "a", .version = 3}});
  ASSERT_TRUE(world_.AwaitDrained());
  ASSERT_EQ(world_.Count("SELECT parked FROM feed_state.key_state"), 1);
  Run(To(WallTime(), ResetMode::kOverwrite));
  ASSERT_TRUE(AwaitSought(2));
  ASSERT_TRUE(world_.Await([&] { return group->status().counts.duplicates >= 2; }));
  ASSERT_TRUE(world_.AwaitDrained());
  EXPECT_EQ(world_.Count("SELECT parked FROM feed_state.key_state"), 1);
}

}  // namespace
}  // namespace lockstep::runner
