// COMMITs that wait for a synchronous standby which is not there: on a cluster of its own, whose
// every transaction waits.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "postgres/sql_error.h"
#include "runner/testing/cluster_world.h"

namespace lockstep::runner {
namespace {

class WithoutItsStandby : public ::testing::Test {
 protected:
  WithoutItsStandby() {
    const std::string shared = testing::TestCluster();
    setenv("LOCKSTEP_TEST_PG", cluster_.admin_url().c_str(), 1);
    world_ = std::make_unique<GroupWorld>();
    setenv("LOCKSTEP_TEST_PG", shared.c_str(), 1);
    looker_ = world_->database.Connect();
  }
  ~WithoutItsStandby() override {
    Wait(false);
    setenv("LOCKSTEP_TEST_PG", cluster_.admin_url().c_str(), 1);
    world_.reset();
  }

  // From some moment soon after on.
  void Wait(bool wanted) {
    EXPECT_TRUE(looker_
                    ->Run(wanted ? "ALTER SYSTEM SET synchronous_standby_names = 'gone'"
                                 : "ALTER SYSTEM RESET synchronous_standby_names")
                    .ok());
    EXPECT_TRUE(looker_->Run("SELECT pg_reload_conf()").ok());
  }
  // A session that waits; 0 = none.
  int64_t Waiting() {
    const auto pid = looker_->Execute(
        "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    EXPECT_TRUE(pid.ok()) << pid.status();
    return pid.ok() ? pid->Int(0, 0) : 0;
  }

  Cluster cluster_;
  std::unique_ptr<GroupWorld> world_;
  std::unique_ptr<postgres::Connection> looker_;
};

TEST_F(WithoutItsStandby, WhatADrainHasCancelledIsNotAcked) {
  world_->poll = Millis(60'000);  // its heartbeats would wait too, and the drain behind them
  world_->drain = Millis(100);
  world_->options.lanes = 1;
  auto group = world_->NewGroup();
  ASSERT_TRUE(world_->Await([&] { return group->status().ready(); }));
  Wait(true);
  int64_t version = 0;
  while (Waiting() == 0) {
    world_->Publish({{.version = ++version}});
    ASSERT_TRUE(world_->Await([&] {
      return Waiting() != 0 ||
             world_->Count("SELECT coalesce(max(version), 0) FROM rm.items") == version;
    }));
  }
  std::thread stopping([&] { group->Stop(); });
  EXPECT_TRUE(world_->bus.Await([&] { return world_->bus.Outstanding(kSubscription) == 0; }));
  EXPECT_EQ(world_->bus.Backlog(kSubscription), 1) << "it may be lost with this server";
  Wait(false);
  stopping.join();
  group = world_->NewGroup("another");
  EXPECT_TRUE(world_->AwaitDrained());
  EXPECT_EQ(world_->Count("SELECT n FROM rm.counters"), version) << "and the inbox knows it";
}

// The COMMIT that waits keeps its rows locked, so that every other try fails by a timeout.
TEST_F(WithoutItsStandby, NobodyIsBlamedHoweverLongItIsAway) {
  world_->options.statement_timeout = Millis(100);
  world_->options.transient_tries = 1;
  world_->options.max_attempts = 1;
  world_->options.lanes = 1;
  const auto group = world_->NewGroup();
  ASSERT_TRUE(world_->Await([&] { return group->status().ready(); }));
  Wait(true);
  for (int64_t version = 1; Waiting() == 0; ++version) world_->Publish({{.version = version}});
  for (const int failures : {2, 3}) {  // five seconds each
    EXPECT_TRUE(world_->bus.Await([&] { return group->status().counts.failures >= failures; }));
  }
  Wait(false);
  ASSERT_TRUE(world_->AwaitDrained());
  EXPECT_EQ(world_->DeadLetters(), 0);
}

// Nor is an event of another lane that wants a row of such a COMMIT: it would be a dead letter that
// nothing but the probe has kept from being written.
TEST_F(WithoutItsStandby, NobodyIsBlamedForARowThatItsCommitHolds) {
  world_->options.statement_timeout = Millis(100);
  world_->options.transient_tries = 1;
  world_->options.max_attempts = 1;
  world_->options.lanes = 4;
  world_->database.Run("CREATE TABLE rm.shared (n int); INSERT INTO rm.shared VALUES (0)");
  const std::string counts = Running("UPDATE rm.shared SET n = n + 1");
  const auto group = world_->NewGroup();
  ASSERT_TRUE(world_->Await([&] { return group->status().ready(); }));
  Wait(true);
  int64_t events = 0;
  while (Waiting() == 0) world_->Publish({{.version = ++events, .payload = counts}});
  for (const char* id : {"k2", "k3", "k4", "k5", "k6"}) {
    world_->Publish({{.id = id, .payload = counts}});
    ++events;
  }
  EXPECT_TRUE(world_->bus.Await([&] { return group->status().counts.failures >= 4; }));
  Wait(false);
  ASSERT_TRUE(world_->AwaitDrained());
  EXPECT_EQ(world_->DeadLetters(), 0);
  EXPECT_EQ(world_->Count("SELECT n FROM rm.shared"), events);
}

TEST_F(WithoutItsStandby, ACommitWhoseWaitSomebodyCancelledIsInDoubt) {
  const auto connection = world_->database.Connect();
  Wait(true);
  std::atomic<bool> waits = false;
  std::thread cancelling([&] {
    for (int64_t pid = 0; !waits;) {
      if ((pid = Waiting()) == 0) continue;
      waits = true;
      EXPECT_TRUE(looker_->Run("SELECT pg_cancel_backend($1)", pid).ok());
    }
  });
  absl::Status committed;
  while (!waits) {  // the first may be before the server has read its configuration
    auto transaction = connection->Begin();
    ASSERT_TRUE(transaction->Run("INSERT INTO rm.counters SELECT 'x' || random(), 1").ok());
    committed = transaction->Commit();
  }
  cancelling.join();
  EXPECT_EQ(postgres::Classify(committed), postgres::ErrorClass::kInDoubt) << committed;
  EXPECT_TRUE(connection->broken());
}

}  // namespace
}  // namespace lockstep::runner
