// Rebuilds on the emulator: under load with readers, and interrupted at every step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "offsets/reset.h"
#include "operations/testing/rebuild_fixture.h"
#include "platform/status.h"
#include "runner/testing/test_group.h"
#include "tests/support/eventually.h"

namespace lockstep::operations {

using namespace runner;  // what a group is made of, and its fixtures
namespace {

using ::testing::AllOf;
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

TEST_F(RebuildTest, TheGroupsFileGoesOnNamingItsSubscriptionAndTheStatusNamesTheSlots) {
  auto driver = world_.NewDriver();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
  ASSERT_EQ(driver.rebuild->Finish(/*now=*/true), absl::OkStatus());
  const auto await = [](const std::function<bool()>& there) { return testing::Eventually(there); };
  const std::string slot = std::string(kSubscription) + ".slot2";
  EXPECT_TRUE(await([&] { return world_.RunnerStatus().subscription == slot; }));
  world_.StopRunners();
  world_.options.subscription = std::string(kSubscription) + "-other";
  world_.StartRunner("astray");
  EXPECT_TRUE(await([&] { return world_.RunnerStatus().state == GroupState::kHalted; }));
  EXPECT_THAT(world_.RunnerStatus().reason,
              HasSubstr(fmt::format("belongs to subscription {}, the", kSubscription)));
  world_.StopRunners();
  world_.options.subscription = kSubscription;
  world_.StartRunner("three");
  world_.Publish(1);
  EXPECT_TRUE(world_.Settle());
  EXPECT_EQ(world_.RunnerStatus().subscription, slot);
}

// The same tables, and one column more.
constexpr char kWithNote[] = R"(
group: feed
subscription: items.feed
projections:
  - {name: items, table: rm.items, key: id, version: version, updated_at: updated_at,
     events: {ItemChanged: {replace: {a: a, note: a}}}}
  - {name: counters, table: rm.counters, key: id,
     events: {ItemChanged: {increment: {n: {value: 1}}}}}
)";

TEST_F(RebuildTest, IsRefusedUntilEveryRunnerHasTheFilesMapping) {
  world_.Declare(kWithNote);
  auto driver = world_.NewDriver();
  EXPECT_THAT(Text(world_.Begin(*driver.rebuild)),
              AllOf(HasSubstr("another mapping"), HasSubstr("one, two"), HasSubstr("restart")));
  EXPECT_EQ(world_.Orphans(), "") << "refused before anything is made";
  world_.StopRunners();
  world_.StartRunner("three");
  ASSERT_TRUE(world_.Await("SELECT count(*) FROM feed_state.instances", 1));
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus()) << "the new column is not compared";
  EXPECT_THAT(driver.rebuild->last_swap()->tables[0].not_compared, ::testing::Contains("note"));
  world_.Publish(1);
  ASSERT_TRUE(world_.Settle());
  EXPECT_EQ(world_.database.QueryInt("SELECT count(*) FROM rm.items WHERE note IS NULL"), 0);
}

TEST_F(RebuildTest, LooksAtTheLiveTablesBeforeItMakesAnything) {
  std::string wants_more = kWithNote;
  wants_more.replace(wants_more.find("note: a"), 7, "more: a");
  world_.StopRunners();
  world_.Declare(wants_more);
  auto driver = world_.NewDriver();
  EXPECT_THAT(Text(world_.Begin(*driver.rebuild)),
              AllOf(HasSubstr("does not fit the live tables"), HasSubstr("more")));
  EXPECT_EQ(world_.Orphans(), "");
  EXPECT_EQ(world_.database.QueryInt("SELECT count(*) FROM feed_state.rebuilds"), 0);
}

TEST_F(RebuildTest, ManyDifferencesOfAKindHideNoneOfAnother) {
  world_.database.Run("UPDATE rm.items SET note = 'by hand' WHERE id <> 'k3'");
  world_.database.Run("UPDATE rm.items SET a = 'spoilt' WHERE id = 'k3'");
  auto driver = world_.NewDriver();
  ASSERT_TRUE(world_.Begin(*driver.rebuild).ok());
  EXPECT_THAT(Text(world_.Resume(*driver.rebuild)), HasSubstr("differ from the live ones"));
  const auto& found = driver.rebuild->last_swap()->tables[0].differences;
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(found[0].key + " " + found[0].what, "(k3) differs in a");
  EXPECT_EQ(found[1].what, "differs in note");
  EXPECT_EQ(found[1].rows, RebuildWorld::kKeys - 1);
  // What somebody knows of need not be compared.
  driver = {};
  world_.ignored_columns = {"rm.items.a"};
  driver = world_.NewDriver();
  world_.database.Run("UPDATE rm.items SET note = NULL");
  EXPECT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
}

// Between the last look and the lock, too.
TEST_F(RebuildTest, ARunnerThatComesWithAnotherMappingHoldsTheSwapUpUntilItIsGone) {
  bool came = false;
  std::string early;  // what was done although it was there
  auto driver = world_.NewDriver([&](std::string_view step) {
    if (step == "swap.locked" && !std::exchange(came, true)) world_.PretendRunner("late", "old");
    const bool told = !world_.notes.empty() && world_.notes.back().ends_with(": late");
    const bool there = world_.database.QueryInt(
        "SELECT count(*) FROM feed_state.instances WHERE instance = 'late'");
    if (there && step == "swap.verified") early = step;
    if (there && told && step == "filled") {
      world_.database.Run("DELETE FROM feed_state.instances WHERE instance = 'late'");
    }
    return absl::OkStatus();
  });
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  ASSERT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus());
  EXPECT_TRUE(came);
  EXPECT_EQ(early, "");
  EXPECT_THAT(world_.notes, ::testing::Contains(HasSubstr("another mapping: late")));
}

TEST_F(RebuildTest, SaysHowToGoOnWhenARunnerKeepsAnotherMapping) {
  world_.restarts = Millis(0);
  auto driver = world_.NewDriver();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  world_.PretendRunner("late", "");
  EXPECT_THAT(
      Text(world_.Resume(*driver.rebuild)),
      AllOf(HasSubstr("late"), HasSubstr("nothing was swapped"), HasSubstr("rebuild resume feed")));
  EXPECT_EQ(world_.Subscription(), kSubscription);
  world_.database.Run(
      "UPDATE feed_state.instances SET seen_at = now() - interval '2 minutes' "
      "WHERE instance = 'late'");
  EXPECT_EQ(world_.Resume(*driver.rebuild), absl::OkStatus()) << "it is gone";
}

TEST_F(RebuildTest, DoesNotGoOnWithAnotherFileThanItBeganWith) {
  auto driver = world_.NewDriver();
  ASSERT_EQ(world_.Begin(*driver.rebuild), absl::OkStatus());
  world_.Declare(kWithNote);
  EXPECT_THAT(
      Text(world_.Resume(*driver.rebuild)),
      AllOf(HasSubstr("has changed since the rebuild began"), HasSubstr("rebuild abort feed")));
  EXPECT_EQ(driver.rebuild->Abort(), absl::OkStatus());
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
  EXPECT_THAT(lines, ::testing::ElementsAre("rm.items(k3) differs in a",
                                            "rm.items(extra) is missing in the new table",
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
