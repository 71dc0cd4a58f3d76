#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "tests/support/eventually.h"
#include "tests/support/test_database.h"

namespace lockstep::postgres {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MigrationSet TwoSteps() {
  return {"test", *ParseMigrations(
                      {{"state/001_a.up.sql", "CREATE TABLE a (x int)"},
                       {"state/001_a.down.sql", "DROP TABLE a"},
                       {"state/002_b.up.sql", "CREATE TABLE b (x int); CREATE TABLE c (y int)"},
                       {"state/002_b.down.sql", "DROP TABLE b; DROP TABLE c"}})};
}

TEST(ParseMigrations, RefusesGapsAndMissingWaysDown) {
  EXPECT_FALSE(ParseMigrations({{"002_b.up.sql", "x"}, {"002_b.down.sql", "x"}}).ok());
  EXPECT_FALSE(ParseMigrations({{"001_b.up.sql", "x"}}).ok());
  EXPECT_FALSE(ParseMigrations({{"readme.md", "x"}}).ok());
}

TEST(Migrator, GoesUpDownAndUpAgain) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  Migrator migrator(*connection, "odd \"schema", TwoSteps());
  EXPECT_THAT(*migrator.Up(), ElementsAre(1, 2));
  EXPECT_THAT(*migrator.Up(), IsEmpty());
  EXPECT_EQ(db.QueryInt("SELECT count(*) FROM \"odd \"\"schema\".c"), 0);
  EXPECT_THAT(*migrator.Down(1), ElementsAre(2));
  EXPECT_THAT(*migrator.Down(0), ElementsAre(1));
  EXPECT_THAT(*migrator.Up(), ElementsAre(1, 2));
}

TEST(Migrator, LeavesNothingOfAFailedStep) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  MigrationSet steps = TwoSteps();
  steps.steps[1].up = "CREATE TABLE b (x int); SELECT 1/0";
  Migrator migrator(*connection, "s", steps);
  EXPECT_THAT(std::string(MessageOf(migrator.Up().status())), HasSubstr("002_b"));
  EXPECT_EQ(db.QueryInt("SELECT count(*) FROM s.schema_migrations"), 1);
  EXPECT_TRUE(db.Query("SELECT to_regclass('s.b')").IsNull(0, 0));
}

TEST(Migrator, RefusesAStepThatChangedAfterwards) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  ASSERT_TRUE(Migrator(*connection, "s", TwoSteps()).Up().ok());
  MigrationSet steps = TwoSteps();
  steps.steps[0].up += " -- edited";
  EXPECT_THAT(std::string(MessageOf(Migrator(*connection, "s", steps).Up().status())),
              HasSubstr("migration 1"));
}

// Each set goes its own way, in whatever order they come.
TEST(Migrator, KeepsTheSetsOfASchemaApart) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  const MigrationSet other{"other", *ParseMigrations({{"001_d.up.sql", "CREATE TABLE d (x int)"},
                                                      {"001_d.down.sql", "DROP TABLE d"}})};
  const auto check = [&](const MigrationSet& set) {
    return std::string(MessageOf(CheckSchemaVersion(*connection, "s", set, "migrate it")));
  };
  EXPECT_THAT(*Migrator(*connection, "s", TwoSteps()).Up(), ElementsAre(1, 2));
  EXPECT_THAT(check(other), AllOf(HasSubstr("does not have the set other"), HasSubstr("migrate")));
  EXPECT_THAT(*Migrator(*connection, "s", other).Up(), ElementsAre(1));
  EXPECT_EQ(check(other), "");
  EXPECT_EQ(Migrator(*connection, "s", other).Status()->size(), 1u);
  EXPECT_THAT(*Migrator(*connection, "s", TwoSteps()).Down(0), ElementsAre(2, 1));
  EXPECT_THAT(*Migrator(*connection, "s", other).Up(), IsEmpty()) << "it is still there";
  EXPECT_EQ(db.QueryInt("SELECT count(*) FROM s.d"), 0);
  EXPECT_THAT(*Migrator(*connection, "s", other).Down(0), ElementsAre(1));
}

// A dump, or a forgotten transaction, reads a table that a migration wants for itself.
TEST(Migrator, LetsOthersPassWhileItWaitsForALock) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  ASSERT_TRUE(Migrator(*connection, "s", TwoSteps()).Up().ok());
  auto reader = db.Connect();
  auto reading = reader->Begin();
  ASSERT_TRUE(reading->Run("SELECT * FROM s.b").ok());
  absl::StatusOr<std::vector<int>> undone;
  std::jthread migration([&] {
    undone = Migrator(*connection, "s", TwoSteps(), {.at_most = Millis(50), .pause = Millis(50)})
                 .Down(1);
  });
  EXPECT_TRUE(testing::Eventually([&] {
    return db.QueryInt(
               "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = "
               "'AccessExclusiveLock'") == 1;
  }));
  EXPECT_EQ(db.QueryInt("SELECT count(*) FROM s.b"), 0) << "another reader gets its turn";
  ASSERT_TRUE(reading->Commit().ok());
  migration.join();
  ASSERT_TRUE(undone.ok()) << undone.status();
  EXPECT_THAT(*undone, ElementsAre(2));
}

TEST(Migrator, SaysSoWhenALockIsNeverLetGo) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  ASSERT_TRUE(Migrator(*connection, "s", TwoSteps()).Up().ok());
  auto reader = db.Connect();
  auto reading = reader->Begin();
  ASSERT_TRUE(reading->Run("SELECT * FROM s.b").ok());
  Migrator migrator(*connection, "s", TwoSteps(),
                    {.at_most = Millis(10), .pause = Millis(1), .tries = 2});
  EXPECT_THAT(std::string(MessageOf(migrator.Down(1).status())),
              AllOf(HasSubstr("002_b"), HasSubstr("look for long transactions")));
}

TEST(Migrator, AStepTakesAsLongAsItNeeds) {
  testing::TestDatabase db;
  MigrationSet steps = TwoSteps();
  steps.steps[1].up += "; SELECT pg_sleep(0.5)";
  auto connection = Connection::Open({.url = db.url(), .statement_timeout = Millis(200)});
  ASSERT_TRUE(connection.ok());
  EXPECT_TRUE(Migrator(**connection, "s", steps).Up().ok());
}

TEST(Migrator, AStepBesideWritersTakesAsLongAsItNeeds) {
  testing::TestDatabase db;
  MigrationSet steps = TwoSteps();
  steps.steps.push_back({.version = 3,
                         .name = "slow",
                         .up = "-- concurrently\nSELECT pg_sleep(0.5)",
                         .down = "SELECT 1"});
  auto connection = Connection::Open({.url = db.url(), .statement_timeout = Millis(200)});
  ASSERT_TRUE(connection.ok());
  const auto applied = Migrator(**connection, "s", steps).Up();
  EXPECT_TRUE(applied.ok()) << applied.status();
}

TEST(Migrator, MakesAnIndexBesideWritersAndAfterAFailedTry) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  MigrationSet steps = TwoSteps();
  ASSERT_TRUE(Migrator(*connection, "s", steps).Up().ok());
  db.Run("INSERT INTO s.a VALUES (1), (1)");
  steps.steps.push_back({.version = 3,
                         .name = "index",
                         .up = "-- concurrently\nCREATE UNIQUE INDEX CONCURRENTLY a_x ON a (x)",
                         .down = "DROP INDEX CONCURRENTLY IF EXISTS a_x"});
  Migrator migrator(*connection, "s", steps);
  EXPECT_THAT(std::string(MessageOf(migrator.Up().status())), HasSubstr("003_index"));
  EXPECT_EQ(db.QueryInt("SELECT count(*) FROM pg_index WHERE indexrelid = 's.a_x'::regclass AND "
                        "NOT indisvalid"),
            1);
  db.Run("DELETE FROM s.a");
  EXPECT_THAT(*migrator.Up(), ElementsAre(3));
  EXPECT_EQ(db.QueryInt("SELECT count(*) FROM pg_index WHERE indexrelid = 's.a_x'::regclass AND "
                        "indisvalid"),
            1);
  EXPECT_THAT(*migrator.Down(2), ElementsAre(3));
  EXPECT_TRUE(db.Query("SELECT to_regclass('s.a_x')").IsNull(0, 0));
}

// A migrator that is stopped in the middle of it must not keep others out for ever.
TEST(Migrator, ItsSessionLockEndsWithASilentSession) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  MigrationSet steps = TwoSteps();
  steps.steps.push_back({.version = 3,
                         .name = "limit",
                         .up = "-- concurrently\nCREATE TABLE seen AS SELECT "
                               "current_setting('idle_session_timeout') AS silence",
                         .down = "DROP TABLE IF EXISTS seen"});
  ASSERT_TRUE(Migrator(*connection, "s", steps).Up().ok());
  EXPECT_EQ(db.Query("SELECT silence FROM s.seen").Text(0, 0), "5min");
  EXPECT_EQ(connection->Execute("SHOW idle_session_timeout")->Text(0, 0), "0");
}

// A schema is brought up first; old programs and new ones then work beside each other.
TEST(SchemaVersion, OldProgramsWorkWithANewerSchemaUnlessItIsMarked) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  const auto check = [&](int known) {
    MigrationSet set{"test", std::vector<Migration>(known)};
    return std::string(MessageOf(CheckSchemaVersion(*connection, "s", set, "migrate it")));
  };
  EXPECT_THAT(check(1), AllOf(HasSubstr("is not there"), HasSubstr("migrate it")));
  MigrationSet steps = TwoSteps();
  ASSERT_TRUE(Migrator(*connection, "s", steps).Up().ok());
  EXPECT_EQ(check(2), "");
  EXPECT_EQ(check(1), "") << "an old program";
  EXPECT_THAT(check(3), AllOf(HasSubstr("is at migration 2"), HasSubstr("needs 3")));
  steps.steps.push_back({.version = 3,
                         .name = "rename",
                         .up = "-- incompatible: x is y\nALTER TABLE a RENAME x TO y",
                         .down = "ALTER TABLE a RENAME y TO x"});
  ASSERT_TRUE(Migrator(*connection, "s", steps).Up().ok());
  EXPECT_THAT(check(2), HasSubstr("since migration 3 this program"));
  EXPECT_EQ(check(3), "");
}

}  // namespace
}  // namespace lockstep::postgres
