// Rebuilds on the emulator: under load with readers, and interrupted at every step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "offsets/reset.h"
#include "operations/testing/rebuild_fixture.h"
#include "platform/status.h"
#include "runner/testing/test_group.h"

namespace lockstep::operations {

using namespace runner;  // what a group is made of, and its fixtures
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const absl::Status& status) { return std::string(MessageOf(status)); }

class RebuildTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.StartRunner("one");
    world_.StartRunner("two");
    world_.Publish(5);
    ASSERT_TRUE(world_.Settle());
  }

  RebuildWorld world_;
};

TEST_F(RebuildTest, UnderLoadReadersNoticeNothing) {
  world_.StartLoad();
  auto driver = world_.NewDriver();
  ASSERT_TRUE(world_.Begin(*driver.rebuild).ok());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
  EXPECT_EQ(world_.Subscription(), std::string(kSubscription) + ".slot2");
  // Until it is seen that the runners serve from the new slot.
  const int64_t version = world_.database.QueryInt("SELECT min(version) FROM rm.items");
  ASSERT_TRUE(
      world_.Await(fmt::format("SELECT (min(version) > {})::int FROM rm.items", version + 5), 1));
  // Back, also under load: the old tables catch up by their own subscription.
  world_.AllowStepBack();
  ASSERT_EQ(driver.rebuild->Rollback("ada", "a test"), absl::OkStatus());
  EXPECT_EQ(world_.Subscription(), kSubscription);
  world_.StopLoad();
  EXPECT_THAT(world_.complaints(), IsEmpty());
  EXPECT_GT(world_.reads(), 10);
  EXPECT_TRUE(world_.Settle());
  EXPECT_EQ(world_.Orphans(), "");
}

TEST_F(RebuildTest, ADriverThatIsStoppedKeepsTheLockForABoundedTime) {
  auto driver = world_.NewDriver();
  ASSERT_TRUE(world_.Begin(*driver.rebuild).ok());
  EXPECT_EQ(driver.connection->Execute("SHOW idle_session_timeout")->Text(0, 0), "5min");
}

TEST_F(RebuildTest, ThereIsNoWayBackToTablesWhoseEventsAreGone) {
  auto driver = world_.NewDriver();
  ASSERT_TRUE(world_.Begin(*driver.rebuild).ok());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
  ASSERT_EQ(driver.rebuild->MayRollback().status(), absl::OkStatus());
  world_.database.Run("UPDATE feed_state.rebuilds SET swapped_at = now() - interval '8 days'");
  EXPECT_THAT(Text(driver.rebuild->Rollback("ada", "a test")), HasSubstr("what they lack is gone"));
  EXPECT_EQ(world_.Subscription(), std::string(kSubscription) + ".slot2");
}

TEST_F(RebuildTest, FinishedLeavesTheNewSlotAlone) {
  auto driver = world_.NewDriver();
  ASSERT_TRUE(world_.Begin(*driver.rebuild).ok());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
  ASSERT_TRUE(driver.rebuild->last_swap());
  EXPECT_EQ(driver.rebuild->last_swap()->tables.size(), 2u);
  EXPECT_FALSE(driver.rebuild->last_swap()->differs());
  EXPECT_THAT(Text(driver.rebuild->Finish(/*now=*/false)), HasSubstr("are kept until"));
  ASSERT_EQ(driver.rebuild->Finish(/*now=*/true), absl::OkStatus());
  EXPECT_EQ(world_.Orphans(), "");
  world_.Publish(3);
  EXPECT_TRUE(world_.Settle());
  // And again, from a slot that a rebuild made.
  auto next = world_.NewDriver();
  ASSERT_FALSE(world_.Begin(*next.rebuild).ok());  // the first driver is still there
  driver = {};
  ASSERT_EQ(world_.Begin(*next.rebuild), absl::OkStatus());
  ASSERT_EQ(world_.Resume(*next.rebuild), absl::OkStatus());
  EXPECT_EQ(world_.Subscription(), std::string(kSubscription) + ".slot3");
  ASSERT_EQ(next.rebuild->Finish(/*now=*/true), absl::OkStatus());
  EXPECT_EQ(world_.Orphans(), "");
}

TEST_F(RebuildTest, WithoutHistoryIsRefusedAndNamesTheAlternative) {
  RebuildWorld world(/*history=*/false);
  world.StartRunner("one");
  world.Publish(1);
  ASSERT_TRUE(world.Settle());
  auto driver = world.NewDriver();
  const std::string refusal = Text(world.Begin(*driver.rebuild));
  EXPECT_THAT(refusal, HasSubstr("keeps no history"));
  EXPECT_THAT(refusal, HasSubstr("offsets reset feed --to-earliest --empty"));
  EXPECT_EQ(world.Orphans(), "");
}

TEST_F(RebuildTest, DifferencesAreListedAndNotSwapped) {
  world_.database.Run("UPDATE rm.items SET a = 'spoilt' WHERE id = 'k3'");
  world_.database.Run("DELETE FROM rm.counters WHERE id = 'k4'");
  world_.database.Run("INSERT INTO rm.items VALUES ('extra', 1, 'x', now())");
  auto driver = world_.NewDriver();
  ASSERT_TRUE(world_.Begin(*driver.rebuild).ok());
  EXPECT_THAT(Text(world_.Resume(*driver.rebuild)), HasSubstr("differ from the live ones"));
  ASSERT_TRUE(driver.rebuild->last_swap());
  std::vector<std::string> lines;
  for (const auto& table : driver.rebuild->last_swap()->tables) {
    for (const auto& d : table.differences) lines.push_back(table.table + d.key + " " + d.what);
  }
  EXPECT_THAT(lines, ::testing::ElementsAre("rm.items(extra) is missing in the new table",
                                            "rm.items(k3) differs in a",
                                            "rm.counters(k4) is in the new table only"));
  EXPECT_EQ(world_.Subscription(), kSubscription);
  ASSERT_EQ(world_.Resume(*driver.rebuild, /*despite_differences=*/true), absl::OkStatus());
  EXPECT_TRUE(world_.Settle());
  ASSERT_EQ(driver.rebuild->Finish(/*now=*/true), absl::OkStatus());
  EXPECT_EQ(world_.Orphans(), "");
}

TEST_F(RebuildTest, TablesThatChangedMeanwhileAreNotSwapped) {
  auto driver = world_.NewDriver([&](std::string_view step) {
    if (step == "filled") world_.database.Run("CREATE INDEX items_late ON rm.items (version)");
    return absl::OkStatus();
  });
  ASSERT_TRUE(world_.Begin(*driver.rebuild).ok());
  EXPECT_THAT(Text(world_.Resume(*driver.rebuild)), HasSubstr("has got index items_late"));
  ASSERT_EQ(driver.rebuild->Abort(), absl::OkStatus());
  EXPECT_EQ(world_.Orphans(), "");
}

TEST_F(RebuildTest, WhatTheNewTablesLackKeepsThemFromBeingSwapped) {
  std::stop_source stop;
  std::jthread patience;
  auto driver = world_.NewDriver([&](std::string_view step) {
    if (step == "filled" && !patience.joinable()) {
      world_.database.Run(
          "INSERT INTO feed_state.inbox (generation, event_id) SELECT generation, "
          "gen_random_uuid() FROM feed_state.slots WHERE group_name = 'feed'");
      patience = std::jthread([&] {
        std::this_thread::sleep_for(Millis(2'000));
        stop.request_stop();
      });
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(world_.Begin(*driver.rebuild).ok());
  EXPECT_TRUE(absl::IsCancelled(driver.rebuild->Resume(false, stop.get_token())));
  EXPECT_TRUE(patience.joinable());
  EXPECT_EQ(world_.Subscription(), kSubscription);
  ASSERT_EQ(driver.rebuild->Abort(), absl::OkStatus());
  EXPECT_EQ(world_.Orphans(), "");
}

// Its Seek would go to a subscription that no longer serves.
TEST_F(RebuildTest, WhileAResetIsUnderWayNothingIsSwapped) {
  auto driver = world_.NewDriver([&](std::string_view step) -> absl::Status {
    if (step != "filled") return absl::OkStatus();
    const auto connection = world_.database.Connect();
    return offsets::Resets(state::Schema("feed_state"), ConsumerGroup("feed"))
        .Run(*connection, {.seek = state::SeekTarget::To(WallTime()),
                           .operator_name = "ada",
                           .reason = "a test",
                           .fence = std::chrono::minutes(10)})
        .status();
  });
  ASSERT_TRUE(world_.Begin(*driver.rebuild).ok());
  EXPECT_THAT(Text(world_.Resume(*driver.rebuild)), HasSubstr("a reset of the group is under way"));
  EXPECT_EQ(world_.Subscription(), kSubscription);
  ASSERT_EQ(driver.rebuild->Abort(), absl::OkStatus());
  EXPECT_EQ(world_.Orphans(), "");
}

// Every step at which a process can die, and the ways on from there.
struct Interruption {
  const char* step;
  const char* during;  // begin, rollback, finish
  const char* then;    // resume, abort, rollback
};

class Interrupted : public RebuildTest, public ::testing::WithParamInterface<Interruption> {
 protected:
  absl::Status Do(Rebuild& rebuild, const std::string& what) {
    if (what == "begin") {
      RETURN_IF_ERROR(world_.Begin(rebuild));
      return world_.Resume(rebuild);
    }
    if (what == "resume") return world_.Resume(rebuild);
    if (what == "abort") return rebuild.Abort();
    if (what == "rollback") return rebuild.Rollback("ada", "a test");
    return rebuild.Finish(/*now=*/true);
  }
};

TEST_P(Interrupted, LeavesOneCompleteTableAndNoOrphan) {
  const Interruption& c = GetParam();
  const std::string during = c.during, then = c.then;
  world_.StartLoad();
  if (during == "rollback" || then == "rollback") world_.AllowStepBack();
  if (during != "begin") {
    auto before = world_.NewDriver();
    ASSERT_EQ(Do(*before.rebuild, "begin"), absl::OkStatus());
  }
  bool reached = false;
  {
    auto dying = world_.NewDriver([&](std::string_view step) {
      if (step != c.step) return absl::OkStatus();
      reached = true;
      return absl::InternalError("died here");
    });
    EXPECT_THAT(Text(Do(*dying.rebuild, during)), HasSubstr("died here"));
  }
  ASSERT_TRUE(reached);
  auto next = world_.NewDriver();
  ASSERT_EQ(Do(*next.rebuild, then), absl::OkStatus());
  const auto row = next.rebuild->Load();
  ASSERT_TRUE(row.ok());
  if (*row) {
    ASSERT_EQ(Do(*next.rebuild, "finish"), absl::OkStatus());
  }
  world_.StopLoad();
  EXPECT_THAT(world_.complaints(), IsEmpty());
  EXPECT_TRUE(world_.Settle());
  EXPECT_EQ(world_.Orphans(), "");
}

INSTANTIATE_TEST_SUITE_P(
    AtEachStep, Interrupted,
    ::testing::Values(
        Interruption{"begun", "begin", "resume"}, Interruption{"begun", "begin", "abort"},
        Interruption{"subscribed", "begin", "resume"}, Interruption{"subscribed", "begin", "abort"},
        Interruption{"making", "begin", "resume"}, Interruption{"making", "begin", "abort"},
        Interruption{"made", "begin", "resume"}, Interruption{"made", "begin", "abort"},
        Interruption{"filled", "begin", "resume"}, Interruption{"filled", "begin", "abort"},
        Interruption{"swap.locked", "begin", "abort"},
        Interruption{"swap.verified", "begin", "resume"},
        Interruption{"swap.renamed", "begin", "resume"},
        Interruption{"swap.flipped", "begin", "abort"}, Interruption{"swapped", "begin", "resume"},
        Interruption{"swapped", "begin", "rollback"},
        Interruption{"rollback.flipped", "rollback", "rollback"},
        Interruption{"rolled_back", "rollback", "rollback"},
        Interruption{"dropping", "rollback", "resume"},
        Interruption{"dropped", "rollback", "resume"},
        Interruption{"unsubscribed", "rollback", "rollback"},
        Interruption{"decided", "finish", "finish"}, Interruption{"dropping", "finish", "resume"},
        Interruption{"dropped", "finish", "finish"},
        Interruption{"unsubscribed", "finish", "resume"}),
    [](const auto& test) {
      std::string name =
          fmt::format("{}_in_{}_then_{}", test.param.step, test.param.during, test.param.then);
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

}  // namespace
}  // namespace lockstep::operations
