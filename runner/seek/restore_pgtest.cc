// Backups of the projection's database, taken under load and restored later: on a cluster of its
// own, because a base backup is of a whole cluster.
#include <gtest/gtest.h>

#include <thread>

#include "platform/status.h"
#include "postgres/migrator.h"
#include "runner/testing/own_cluster.h"
#include "runner/testing/test_group.h"
#include "sql/migrations.h"

namespace lockstep::runner {
namespace {

constexpr int kKeys = 8;

enum class Way { kDump, kBaseBackup, kRecovery };

class RestoredBackup : public ::testing::TestWithParam<Way> {
 protected:
  RestoredBackup() {
    auto connection = Connect();
    EXPECT_TRUE(postgres::Migrator(*connection, "feed_state", sql::StateMigrations()).Up().ok());
    EXPECT_TRUE(connection->Run(TestProjector::kTables).ok());
    EXPECT_TRUE(bus_.admin().CreateTopic({.name = kTopic}).ok());
    EXPECT_TRUE(bus_.admin()
                    .CreateSubscription({.name = kSubscription, .topic = kTopic, .ordering = true})
                    .ok());
    options_.name = "feed";
    options_.subscription = kSubscription;
    options_.lanes = 2;
    options_.ack_fence = Millis(100);
    options_.ack_deadline = Millis(10'000);  // a release that the fence cuts off waits no longer
    options_.checkpoint_every = Millis(100);
  }
  ~RestoredBackup() override { StopLoad(); }

  std::unique_ptr<postgres::Connection> Connect() const {
    auto connection = postgres::Connection::Open({.url = cluster_.url()});
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *std::move(connection) : nullptr;
  }
  int64_t Count(const std::string& sql) const {
    const auto connection = Connect();
    const auto rows = connection->Execute(sql);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? rows->Int(0, 0) : -1;
  }
  bool Await(const std::string& sql, int64_t wanted) const {
    const auto deadline = Clock::System().Steady() + std::chrono::seconds(30);
    while (Count(sql) != wanted) {
      if (Clock::System().Steady() > deadline) return false;
      std::this_thread::sleep_for(Millis(20));
    }
    return true;
  }
  bool AwaitModel() const {
    const int64_t version = version_;
    return Await(fmt::format("SELECT count(*) FROM rm.items WHERE version = {}", version), kKeys) &&
           Await(fmt::format("SELECT count(*) FROM rm.counters WHERE n = {}", version), kKeys);
  }
  bool AwaitCheckpoints(int64_t past) const {
    return Await(fmt::format("SELECT (coalesce(max(number), 0) > {})::int FROM "
                             "feed_state.checkpoints",
                             past),
                 1);
  }

  std::unique_ptr<Group> NewGroup(const std::string& instance) {
    environments_.emplace_back(new GroupEnvironment{.database = cluster_.url(),
                                                    .state_schema = "feed_state",
                                                    .instance = instance,
                                                    .transport = bus_,
                                                    .metrics = metrics_,
                                                    .poll = Millis(50),
                                                    .retry_halt = Millis(50)});
    auto group =
        std::make_unique<Group>(options_, std::make_unique<TestProjector>(), *environments_.back());
    EXPECT_TRUE(group->Start().ok());
    return group;
  }
  void Publish() {
    for (int k = 0; k < kKeys; ++k) {
      publisher_->Publish(
          kTopic, {TestEvent{.id = fmt::format("k{}", k), .version = version_ + 1}.Message()},
          [](const auto&) {});
    }
    ++version_;
  }
  void StartLoad() {
    stop_ = false;
    load_ = std::thread([this] {
      while (!stop_) {
        Publish();
        std::this_thread::sleep_for(Millis(10));
      }
    });
  }
  void StopLoad() {
    stop_ = true;
    if (load_.joinable()) load_.join();
  }

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
    ASSERT_TRUE(bus_.Await([&] { return bus_.Backlog(kSubscription) == 0; }));
  }

  Cluster cluster_;
  testing::FakeBus bus_;
  MetricsRegistry metrics_;
  GroupOptions options_;
  std::vector<std::unique_ptr<GroupEnvironment>> environments_;
  const std::unique_ptr<pubsub::Publisher> publisher_ = bus_.NewPublisher({});
  std::atomic<int64_t> version_{0};
  std::atomic<bool> stop_{false};
  std::thread load_;
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
  EXPECT_EQ(Count("SELECT count(*) FROM feed_state.audit WHERE action = 'checkpoint.healed'"), 1);
  Publish();
  EXPECT_TRUE(AwaitModel());
}

TEST_P(RestoredBackup, UnderARunningRunnerIsHealedWithNoHelp) {
  options_.checkpoints = true;
  const auto group = NewGroup("one");
  BackUpUnderLoad();
  Restore();
  EXPECT_TRUE(AwaitModel());
  EXPECT_GE(Count("SELECT count(*) FROM feed_state.audit WHERE action = 'checkpoint.healed'"), 1);
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
