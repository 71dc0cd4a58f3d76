// Whoever locks a table that the group writes stops the group, and costs no event its life.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// As somebody would say it, in a session of their own.
struct Locker {
  Locker(GroupWorld& world, const std::string& sql) : session(world.database.Connect()) {
    EXPECT_TRUE(session->Run("SET application_name = 'the migration'").ok());
    lock.emplace(*session->Begin());
    EXPECT_TRUE(lock->Run(sql).ok());
  }
  std::unique_ptr<postgres::Connection> session;
  std::optional<postgres::Transaction> lock;
};

std::string WaitsFor(const Group& group) {
  for (const LaneStatus& lane : group.status().lanes) {
    if (!lane.waits_for.empty()) return lane.waits_for;
  }
  return "";
}

class TableLock : public ::testing::TestWithParam<const char*> {};

TEST_P(TableLock, IsNoEventsFaultAndNamesTheSession) {
  GroupWorld world;
  world.options.statement_timeout = Millis(100);
  world.options.transient_tries = 1;
  world.options.max_attempts = 1;
  world.database.Run(
      "CREATE TABLE rm.kinds (a text PRIMARY KEY); INSERT INTO rm.kinds VALUES ('x');"
      "ALTER TABLE rm.items ADD FOREIGN KEY (a) REFERENCES rm.kinds;");
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  Locker locker(world, GetParam());
  world.Publish({{.id = "k1"}, {.id = "k2"}, {.id = "k3"}});
  ASSERT_TRUE(world.Await([&] { return group->status().counts.failures >= 8; }));
  EXPECT_THAT(WaitsFor(*group),
              AllOf(HasSubstr(fmt::format("pid {} ", locker.session->backend_pid())),
                    HasSubstr("application the migration"), HasSubstr("(role ")));
  ASSERT_TRUE(locker.lock->Rollback().ok());
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 3);
  EXPECT_TRUE(world.Await([&] { return WaitsFor(*group).empty(); }));
}

INSTANTIATE_TEST_SUITE_P(Of, TableLock,
                         ::testing::Values("CREATE INDEX later ON rm.items (b)",
                                           "ALTER TABLE rm.counters ADD COLUMN later int",
                                           "LOCK TABLE rm.kinds IN EXCLUSIVE MODE",
                                           "LOCK TABLE feed_state.inbox IN SHARE MODE"));

// Somebody who has changed a row and goes on, or another runner that is stopped in its transaction.
class RowLock : public ::testing::TestWithParam<const char*> {};

TEST_P(RowLock, IsNoEventsFault) {
  GroupWorld world;
  world.options.statement_timeout = Millis(200);
  world.options.transient_tries = 1;
  world.options.max_attempts = 1;
  world.Publish({{.id = "k1"}, {.id = "k2"}});
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.AwaitDrained());
  Locker locker(world, GetParam());
  world.Publish({{.id = "k1", .version = 2}, {.id = "k2", .version = 2}, {.id = "k3"}});
  ASSERT_TRUE(world.Await([&] { return group->status().counts.failures >= 6; }));
  ASSERT_TRUE(locker.lock->Rollback().ok());
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_EQ(world.Count("SELECT sum(version) FROM rm.items"), 5);
}

INSTANTIATE_TEST_SUITE_P(Of, RowLock,
                         ::testing::Values("UPDATE rm.items SET a = a",
                                           "INSERT INTO rm.counters VALUES ('k3', 0)",
                                           "SELECT 1 FROM feed_state.offsets FOR UPDATE"));

// A probe passes where only writes are refused: a maintenance, or a disk that is nearly full.
TEST(ReadOnlyDatabase, IsNoEventsFault) {
  ::testing::internal::CaptureStderr();
  GroupWorld world;
  world.options.transient_tries = 1;
  world.options.max_attempts = 1;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  const auto admin = world.database.Connect();
  const std::string alter = "ALTER DATABASE " + world.database.name();
  ASSERT_TRUE(admin->Run(alter + " SET default_transaction_read_only = on").ok());
  ASSERT_TRUE(admin
                  ->Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
                        "current_database() AND application_name LIKE 'lockstep-runner%'")
                  .ok());
  world.Publish({{.id = "k1"}, {.id = "k2"}});
  EXPECT_TRUE(world.bus.Await([&] { return group->status().counts.failures >= 6; }));
  ASSERT_TRUE(admin->Run(alter + " RESET default_transaction_read_only").ok());
  ASSERT_TRUE(world.AwaitDrained());
  EXPECT_EQ(world.DeadLetters(), 0);
  EXPECT_EQ(world.Count("SELECT count(*) FROM rm.items"), 2);
  // A dead letter can't be written either: who is blamed brings the whole group to a halt.
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("sqlstate=25006"), Not(HasSubstr("EVENT.NEVER_COMMITS")),
                    Not(HasSubstr("the group has halted"))));
}

}  // namespace
}  // namespace lockstep::runner
