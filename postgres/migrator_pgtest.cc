#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"
#include "postgres/migrator.h"
#include "tests/support/test_database.h"

namespace lockstep::postgres {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Migration> TwoSteps() {
  return *ParseMigrations({{"state/001_a.up.sql", "CREATE TABLE a (x int)"},
                           {"state/001_a.down.sql", "DROP TABLE a"},
                           {"state/002_b.up.sql", "CREATE TABLE b (x int); CREATE TABLE c (y int)"},
                           {"state/002_b.down.sql", "DROP TABLE b; DROP TABLE c"}});
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
  auto steps = TwoSteps();
  steps[1].up = "CREATE TABLE b (x int); SELECT 1/0";
  Migrator migrator(*connection, "s", steps);
  EXPECT_THAT(std::string(MessageOf(migrator.Up().status())), HasSubstr("002_b"));
  EXPECT_EQ(db.QueryInt("SELECT count(*) FROM s.schema_migrations"), 1);
  EXPECT_TRUE(db.Query("SELECT to_regclass('s.b')").IsNull(0, 0));
}

TEST(Migrator, RefusesAStepThatChangedAfterwards) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  ASSERT_TRUE(Migrator(*connection, "s", TwoSteps()).Up().ok());
  auto steps = TwoSteps();
  steps[0].up += " -- edited";
  EXPECT_THAT(std::string(MessageOf(Migrator(*connection, "s", steps).Up().status())),
              HasSubstr("migration 1"));
}

}  // namespace
}  // namespace lockstep::postgres
