// Which ghosts a repair takes away, and which must stay.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "projections/testing/test_group.h"
#include "tests/support/test_database.h"
#include "verify/repair_plan.h"

namespace lockstep::verify {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kItemsOfShop[] = R"(backfill: items
outbox: shop.outbox
topic: shop.events
table: shop.items
key: [id]
aggregate_type: video
aggregate_id: id
version: version
event_type: Saved
payload:
  fields: {id: id, slug: slug}
)";

class RepairPlanTest : public ::testing::Test {
 protected:
  // `projection`: the lines of its key, and more.
  void Make(const std::string& projection, const std::string& source, const std::string& replica,
            const std::string& declared = kItemsOfShop) {
    const projections::TempFile file("items.yaml", declared);
    auto loaded = publisher::LoadDeclaration(file.path());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    declaration_ = *std::move(loaded);
    auto group = projections::LoadText(
        "group: feed\nsubscription: items.feed\nprojections:\n  - name: items\n"
        "    table: rm.items\n    version: version\n" +
        projection +
        "    events:\n      Saved: {replace: {a: {field: slug}}}\n"
        "      Renamed: {merge: {a: {field: slug}}}\n");
    ASSERT_TRUE(group.ok()) << group.status();
    group_ = *std::move(group);
    auto tables = PlanVerify(declaration_, group_.projector->plan(), "");
    ASSERT_TRUE(tables.ok()) << tables.status();
    table_ = tables->front();
    source_.Run("CREATE SCHEMA shop; " + source);
    replica_.Run("CREATE SCHEMA rm; " + replica);
    const auto types = ReadKeyTypes(*at_replica_, table_.replica);
    ASSERT_TRUE(types.ok()) << types.status();
    from_ = std::make_unique<VerifySide>(*at_source_, table_.source, *types);
    to_ = std::make_unique<VerifySide>(*at_replica_, table_.replica, *types);
  }

  // "class key" of what a comparison finds.
  std::vector<std::string> Compare() {
    Verify verify({.source = *from_,
                   .replica = *to_,
                   .passed = [](const std::stop_token&) { return absl::OkStatus(); }},
                  {});
    auto result = verify.Run({});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    differences_ = result->differences;
    std::vector<std::string> lines;
    for (const Difference& one : differences_) {
      lines.push_back(fmt::format("{} {}", Name(one.kind), fmt::join(one.key, "/")));
    }
    return lines;
  }
  RepairPlan Plan(const GhostOptions& options) {
    auto plan = PlanRepair(declaration_, table_, *from_, *to_, differences_, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : RepairPlan{};
  }
  static std::vector<std::string> Ids(const RepairPlan& plan) {
    std::vector<std::string> ids;
    for (const publisher::Ghost& ghost : plan.ghosts) ids.push_back(ghost.aggregate_id);
    return ids;
  }

  testing::TestDatabase source_, replica_;
  std::unique_ptr<postgres::Connection> at_source_ = source_.Connect(),
                                        at_replica_ = replica_.Connect();
  publisher::Declaration declaration_;
  projections::GroupDeclaration group_;
  VerifyTable table_;
  std::unique_ptr<VerifySide> from_, to_;
  std::vector<Difference> differences_;
};

constexpr char kShop[] =
    "CREATE TABLE shop.items (id bigint PRIMARY KEY, slug text, version int NOT NULL);";

// Else podcast 5 would be a ghost, and the message that it is gone would take video 5 away.
TEST_F(RepairPlanTest, RowsWithAnotherConstantInTheirKeyAreNotOfThisSource) {
  Make("    key: {kind: {attribute: aggregate_type}, id: {field: id}}\n",
       std::string(kShop) + "INSERT INTO shop.items VALUES (5, 's', 1)",
       "CREATE TABLE rm.items (kind text, id bigint, version bigint, a text,"
       " PRIMARY KEY (kind, id));"
       "INSERT INTO rm.items VALUES ('video', 5, 1), ('podcast', 5, 3), ('video', 6, 1)");
  EXPECT_THAT(Compare(), ElementsAre("ghost video/6"));
  differences_.push_back(
      {.kind = DifferenceKind::kGhost, .key = {"podcast", "5"}, .replica_version = 3});
  const RepairPlan plan = Plan({.remove = true, .whole_table = true});
  EXPECT_THAT(Ids(plan), ElementsAre("6"));
  ASSERT_THAT(plan.kept, SizeIs(1));
  EXPECT_THAT(plan.kept[0].why, HasSubstr("another constant"));
}

TEST_F(RepairPlanTest, WhereRowsNameTheirAggregateThoseOfOtherTypesAreLeftOut) {
  Make("    key: id\n    aggregate: owner\n", kShop,
       "CREATE TABLE rm.items (id bigint PRIMARY KEY, version bigint, a text, owner text);"
       "INSERT INTO rm.items VALUES (6, 1, '', 'video@acme/6'), (7, 1, '', 'video/7'),"
       " (8, 1, '', 'channel/8'), (9, 1, '', 'videos/9'), (10, 1, '', NULL)");
  EXPECT_THAT(Compare(), ::testing::UnorderedElementsAre("ghost 6", "ghost 7", "ghost 10"));
  const RepairPlan plan = Plan({.remove = true});
  EXPECT_THAT(Ids(plan), ::testing::UnorderedElementsAre("6", "7"));
  ASSERT_THAT(plan.kept, SizeIs(1));
  EXPECT_THAT(plan.kept[0].key, ElementsAre("10"));
  EXPECT_THAT(plan.kept[0].why, HasSubstr("its aggregate is not known"));
  EXPECT_THAT(Ids(Plan({.remove = true, .whole_table = true})), SizeIs(3));
}

TEST_F(RepairPlanTest, WhereTheyDontTheOperatorSaysThatAllRowsAreOfThisSource) {
  Make("    key: id\n", kShop,
       "CREATE TABLE rm.items (id bigint PRIMARY KEY, version bigint, a text);"
       "INSERT INTO rm.items VALUES (7, 1, '')");
  EXPECT_THAT(Compare(), ElementsAre("ghost 7"));
  const RepairPlan plan = Plan({.remove = true});
  EXPECT_THAT(plan.ghosts, IsEmpty());
  ASSERT_THAT(plan.kept, SizeIs(1));
  EXPECT_THAT(plan.kept[0].why, AllOf(HasSubstr("Renamed"), HasSubstr("--whole-table")));
  EXPECT_THAT(Ids(Plan({.remove = true, .whole_table = true})), ElementsAre("7"));
}

// Rows that the query leaves out are alive, and came by their events.
TEST_F(RepairPlanTest, WhatAQueryLeavesOutIsNoGhostUnlessTheOperatorSaysSo) {
  std::string declared = kItemsOfShop;
  const std::string table = "table: shop.items";
  declared.replace(declared.find(table), table.size(),
                   "query: \"SELECT * FROM shop.items WHERE slug <> 'draft'\"");
  Make("    key: id\n    aggregate: owner\n",
       std::string(kShop) + "INSERT INTO shop.items VALUES (7, 'draft', 1)",
       "CREATE TABLE rm.items (id bigint PRIMARY KEY, version bigint, a text, owner text);"
       "INSERT INTO rm.items VALUES (7, 1, '', 'video/7')",
       declared);
  EXPECT_THAT(Compare(), ElementsAre("ghost 7"));
  const RepairPlan plan = Plan({.remove = true});
  EXPECT_THAT(plan.ghosts, IsEmpty());
  ASSERT_THAT(plan.kept, SizeIs(1));
  EXPECT_THAT(plan.kept[0].why, AllOf(HasSubstr("query of backfill items may leave out rows"),
                                      HasSubstr("--whole-table")));
  EXPECT_THAT(Ids(Plan({.remove = true, .whole_table = true})), ElementsAre("7"));
}

TEST_F(RepairPlanTest, AnAggregateThatIsThereIsNotSaidToBeAbsent) {
  Make("    key: {slug: {field: slug}, id: {attribute: aggregate_id}}\n",
       std::string(kShop) + "INSERT INTO shop.items VALUES (1, 'new', 1)",
       "CREATE TABLE rm.items (slug text, id bigint, version bigint, a text,"
       " PRIMARY KEY (slug, id));"
       "INSERT INTO rm.items VALUES ('old', 1, 1), ('gone', 2, 1)");
  EXPECT_THAT(Compare(), ElementsAre("ghost gone/2", "missing new/1", "ghost old/1"));
  const RepairPlan plan = Plan({.remove = true, .whole_table = true});
  EXPECT_THAT(Ids(plan), ElementsAre("2"));
  EXPECT_THAT(plan.keys, ElementsAre(ElementsAre("1")));
  ASSERT_THAT(plan.kept, SizeIs(1));
  EXPECT_THAT(plan.kept[0].key, ElementsAre("old", "1"));
  EXPECT_THAT(plan.kept[0].why, HasSubstr("the source has its aggregate"));
}

// The publisher would look for it as a number, and send nothing of the whole repair.
TEST_F(RepairPlanTest, AGhostWhoseKeyTheSourceCouldNotHaveIsNotLookedForThere) {
  Make("    key: id\n",
       "CREATE TABLE shop.items (id int PRIMARY KEY, slug text, version int NOT NULL)",
       "CREATE TABLE rm.items (id text PRIMARY KEY, version bigint, a text);"
       "INSERT INTO rm.items VALUES ('7', 1, ''), ('5000000000', 1, ''), ('old-7', 1, '')");
  EXPECT_THAT(Compare(), SizeIs(3));
  std::map<std::string, publisher::KeyTexts> keys;
  for (const publisher::Ghost& ghost : Plan({.remove = true, .whole_table = true}).ghosts) {
    keys[ghost.aggregate_id] = ghost.key;
  }
  EXPECT_THAT(keys["7"], ElementsAre("7"));
  EXPECT_THAT(keys["5000000000"], IsEmpty());
  EXPECT_THAT(keys["old-7"], IsEmpty());
  EXPECT_THAT(keys, SizeIs(3));
}

TEST_F(RepairPlanTest, ARowThatTheSourceSpellsOtherwiseStays) {
  Make("    key: id\n",
       "CREATE TABLE shop.items (id text PRIMARY KEY, slug text, version int NOT NULL);"
       "INSERT INTO shop.items VALUES ('Foo', '', 1), ('Bar', '', 1)",
       "CREATE COLLATION rm.loose (provider = icu, locale = 'und-u-ks-level2',"
       " deterministic = false);"
       "CREATE TABLE rm.items (id text COLLATE rm.loose PRIMARY KEY, version bigint, a text);"
       "INSERT INTO rm.items VALUES ('foo', 1, ''), ('baz', 1, '')");
  EXPECT_THAT(Compare(), ElementsAre("missing Bar", "missing Foo", "ghost baz", "ghost foo"));
  RepairPlan plan = Plan({.remove = true, .whole_table = true});
  EXPECT_THAT(Ids(plan), ElementsAre("baz"));
  ASSERT_THAT(plan.kept, SizeIs(1));
  EXPECT_THAT(plan.kept[0].why, HasSubstr("another spelling"));
  // Which keys the source has is not known then.
  plan = Plan({.remove = true, .whole_table = true, .complete = false});
  EXPECT_THAT(plan.ghosts, IsEmpty());
  EXPECT_THAT(plan.kept, SizeIs(2));
}

}  // namespace
}  // namespace lockstep::verify
