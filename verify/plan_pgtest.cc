// What is compared follows from the backfill's file and the group's; values; repairs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "verify/repair_plan.h"
#include "verify/testing/verify_plan_test.h"
#include "verify/tombstones.h"

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(VerifyPlanTest, TheKeyFollowsFromTheMapping) {
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_THAT(*plan, SizeIs(1));  // the counting table holds no state
  const VerifyTable& table = plan->front();
  EXPECT_EQ(table.name, "rm.videos");
  EXPECT_THAT(table.source.keys, ElementsAre("r.\"tenant\"", "r.\"video_id\""));
  EXPECT_THAT(table.replica.keys, ElementsAre("r.\"owner\"", "r.\"video\""));
  EXPECT_EQ(table.replica.where, "r.\"deleted_at\" IS NULL");
}

TEST_F(VerifyPlanTest, WhatCantBeComparedIsASentence) {
  EXPECT_THAT(PlanError("vidoes"), HasSubstr("group feed has no projection 'vidoes'"));
  EXPECT_THAT(PlanError("totals"), HasSubstr("maps it by another operation"));
  const auto replaced = [](std::string text, const std::string& what, const std::string& by) {
    return text.replace(text.find(what), what.size(), by);
  };
  Load(replaced(kDeclared, "{id: video_id, ", "{"), kGroup);
  EXPECT_THAT(PlanError(), HasSubstr("mapped from field id, which backfill videos does not fill"));
  Load(replaced(kDeclared, "event_type: VideoSaved", "event_type: VideoMade"), kGroup);
  EXPECT_THAT(PlanError(), HasSubstr("there is nothing to compare"));
  Load(kDeclared, replaced(kGroup, "{attribute: tenant_id}", "{attribute: region}"));
  EXPECT_THAT(PlanError(),
              HasSubstr("attribute region, which backfill videos takes from no column"));
  Load(kDeclared, replaced(kGroup, "        replace:",
                           "        when: {field: seconds, present: true}\n        replace:"));
  EXPECT_THAT(PlanError(), HasSubstr("only `when` a condition holds"));
}

TEST_F(VerifyPlanTest, EqualRowsAreEqualInDepthWhateverTheirTypes) {
  MakeTables();
  EXPECT_THAT(Deep(), IsEmpty());
}

TEST_F(VerifyPlanTest, OtherValuesAtTheSameVersionAreFoundByColumn) {
  MakeTables();
  replica_.Run("UPDATE rm.videos SET title = 'spoilt', length = 0 WHERE " + Where(1) +
               "; UPDATE rm.videos SET tags = '{}' WHERE " + Where(2) +
               "; UPDATE rm.videos SET raw = NULL WHERE " + Where(3) +
               "; UPDATE rm.videos SET title = '' WHERE " + Where(7) +
               "; UPDATE rm.videos SET note = 'x', seen_at = 'epoch', event = 'f' WHERE " +
               Where(8) + "; UPDATE rm.videos SET version = 0, title = 'old' WHERE " + Where(9));
  EXPECT_THAT(Deep(), ::testing::UnorderedElementsAre(
                          "content c4ca4238 title,length", "content c81e728d tags",
                          "content eccbc87e raw", "content 8f14e45f title", "behind 45c48cce "));
}

TEST_F(VerifyPlanTest, ValuesThatArriveBeforeTheSecondLookAreNoDifference) {
  MakeTables();
  source_.Run(
      "UPDATE catalog.videos SET title = 'new', version = 9 WHERE video_id = md5('5')::uuid");
  replica_.Run("UPDATE rm.videos SET version = 9 WHERE " + Where(5));
  passed_ = [&] {
    replica_.Run("UPDATE rm.videos SET title = 'new' WHERE " + Where(5));
    return absl::OkStatus();
  };
  EXPECT_THAT(Deep(), IsEmpty());
}

TEST_F(VerifyPlanTest, ARowWhoseVersionMovesIsComparedOnceTheVersionsAgree) {
  MakeTables();
  replica_.Run("UPDATE rm.videos SET title = 'spoilt' WHERE " + Where(5));
  passed_ = [&] {
    source_.Run("UPDATE catalog.videos SET version = 9 WHERE video_id = md5('5')::uuid");
    passed_ = [&] {
      replica_.Run("UPDATE rm.videos SET version = 9 WHERE " + Where(5));
      return absl::OkStatus();
    };
    return absl::OkStatus();
  };
  EXPECT_THAT(Deep(), ElementsAre("content e4da3b7f title"));
}

TEST_F(VerifyPlanTest, RowsOfAnotherVersionAreSaidNotToHaveBeenCompared) {
  MakeTables();
  replica_.Run("UPDATE rm.videos SET version = 0 WHERE " + Where(5) +
               "; DELETE FROM rm.videos WHERE " + Where(4));
  const VerifyTable table = Plan()->front();
  const auto types = ReadKeyTypes(*at_replica_, table.replica);
  VerifySide source(*at_source_, table.source, *types);
  VerifySide replica(*at_replica_, table.replica, *types);
  const auto deep = DeepCompare::Make(declaration_, *group_.projector, table, source, replica);
  ASSERT_TRUE(deep.ok()) << deep.status();
  std::vector<Difference> found;
  ASSERT_TRUE((*deep)->InRange({}, &found).ok());
  ASSERT_THAT(found, SizeIs(2));
  for (const Difference& one : found) {
    EXPECT_NE(one.source_version, one.replica_version);
    EXPECT_THAT(one.columns, IsEmpty());
  }
}

TEST_F(VerifyPlanTest, WideRowsAreReadAFewAtATimeAndAllOfThem) {
  MakeTables();
  replica_.Run("UPDATE rm.videos SET kind = 'spoilt'");
  const VerifyTable table = Plan()->front();
  const auto types = ReadKeyTypes(*at_replica_, table.replica);
  VerifySide source(*at_source_, table.source, *types);
  VerifySide replica(*at_replica_, table.replica, *types);
  int statements = 0;
  source.BeforeEach([&] { ++statements; });
  // A payload has more than a hundred bytes.
  const auto deep =
      DeepCompare::Make(declaration_, *group_.projector, table, source, replica, 1'000);
  ASSERT_TRUE(deep.ok()) << deep.status();
  std::vector<Difference> found, again;
  ASSERT_TRUE((*deep)->InRange({}, &found).ok());
  EXPECT_THAT(found, SizeIs(300));
  EXPECT_GE(statements, 30);
  std::set<RowKey> keys;
  for (const Difference& one : found) keys.insert(one.key);
  EXPECT_THAT(keys, SizeIs(300));
  statements = 0;
  ASSERT_TRUE((*deep)->OfKeys({keys.begin(), keys.end()}, &again).ok());
  EXPECT_THAT(again, SizeIs(300));
  EXPECT_GE(statements, 30);
  // Not even the first fits.
  const auto narrow = DeepCompare::Make(declaration_, *group_.projector, table, source, replica, 0);
  found.clear();
  ASSERT_TRUE((*narrow)->InRange({}, &found).ok());
  EXPECT_THAT(found, SizeIs(300));
}

// One such row must not keep all others from being compared.
TEST_F(VerifyPlanTest, ARowThatCantGoThroughTheProjectionIsADifferenceAndNotTheEnd) {
  MakeTables();
  Load(kDeclared,
       std::string(kGroup) +
           "  - name: by_title\n    table: rm.by_title\n    key: {title: {field: title}}\n"
           "    version: version\n    events:\n"
           "      VideoSaved: {replace: {video: {field: id}}}\n");
  replica_.Run("UPDATE rm.videos SET title = 'spoilt' WHERE " + Where(1));
  EXPECT_THAT(Deep(),
              ::testing::UnorderedElementsAre("content c4ca4238 title", "content 8f14e45f "));
  for (const Difference& one : differences_) {
    if (!one.columns.empty()) continue;
    EXPECT_THAT(one.unmapped, HasSubstr("can't go through projection videos"));
  }
  // Sent, it would be a dead letter.
  const VerifyTable table = Plan()->front();
  const auto types = ReadKeyTypes(*at_replica_, table.replica);
  VerifySide source(*at_source_, table.source, *types);
  VerifySide replica(*at_replica_, table.replica, *types);
  const auto plan = PlanRepair(declaration_, table, source, replica, differences_, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->keys, SizeIs(1));
  EXPECT_EQ(plan->unmapped, 1);
}

TEST_F(VerifyPlanTest, ARepairNamesTheSourcesKeysAndAGhostsAggregate) {
  MakeTables();
  replica_.Run("DELETE FROM rm.videos WHERE " + Where(4) +
               "; UPDATE rm.videos SET title = 'spoilt' WHERE " + Where(5) +
               "; UPDATE rm.videos SET version = 90 WHERE " + Where(6));
  source_.Run("DELETE FROM catalog.videos WHERE video_id = md5('10')::uuid");
  Deep();
  ASSERT_THAT(differences_, SizeIs(4));
  const VerifyTable table = Plan()->front();
  const auto types = ReadKeyTypes(*at_replica_, table.replica);
  VerifySide source(*at_source_, table.source, *types);
  VerifySide replica(*at_replica_, table.replica, *types);
  auto plan = PlanRepair(declaration_, table, source, replica, differences_, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->keys, ::testing::UnorderedElementsAre(
                              ElementsAre("t1", "a87ff679-a2f3-e71d-9181-a67b7542122c"),
                              ElementsAre("t2", "e4da3b7f-bbce-2345-d777-2b0674a318d5")));
  EXPECT_THAT(plan->ghosts, IsEmpty());
  EXPECT_EQ(plan->ghosts_left, 1);
  EXPECT_EQ(plan->ahead, 1);
  plan = PlanRepair(declaration_, table, source, replica, differences_,
                    {.remove = true, .whole_table = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_THAT(plan->ghosts, SizeIs(1));
  const publisher::Ghost& ghost = plan->ghosts.front();
  EXPECT_EQ(ghost.aggregate_id, "d3d94468-02a4-4259-755d-38e6d163e820");
  EXPECT_EQ(ghost.tenant_id, "t1");
  EXPECT_THAT(ghost.key, ElementsAre("t1", "d3d94468-02a4-4259-755d-38e6d163e820"));
  EXPECT_EQ(ghost.version, 3);
  EXPECT_EQ(ghost.payload.dump(), R"({"id":"d3d94468-02a4-4259-755d-38e6d163e820"})");
}

// A source that was restored has a row again that the replica has deleted since.
TEST_F(VerifyPlanTest, ARowThatANewerDeleteKeepsAwayIsAheadAndNotMissing) {
  MakeTables();
  ASSERT_TRUE(projections::MigrateState(*at_replica_).ok());
  replica_.Run(
      "INSERT INTO lockstep_state.consumer_groups (group_name) VALUES ('feed');"
      "INSERT INTO lockstep_state.slots (group_name, slot, subscription) VALUES ('feed', 1, 's')");
  const auto found = [&] {
    const VerifyTable table = Plan()->front();
    const auto types = ReadKeyTypes(*at_replica_, table.replica);
    VerifySide source(*at_source_, table.source, *types);
    VerifySide replica(*at_replica_, table.replica, *types);
    const state::Schema schema("lockstep_state");
    Verify verify({.source = source,
                   .replica = replica,
                   .passed = [](const std::stop_token&) { return absl::OkStatus(); },
                   .deleted =
                       [&](const std::vector<RowKey>& keys) {
                         return FindDeleted(replica, table, schema, "feed", keys);
                       }},
                  {});
    const auto result = verify.Run({});
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<std::string> lines;
    for (const Difference& one : result->differences) {
      lines.push_back(fmt::format("{} {}", Name(one.kind), one.key[1].substr(0, 8)));
    }
    return lines;
  };
  const auto expected =
      ::testing::UnorderedElementsAre("ahead c4ca4238", "missing c81e728d", "missing eccbc87e");
  // Marked deleted, in a newer version, in an older one; and not there at all.
  replica_.Run("UPDATE rm.videos SET deleted_at = now(), version = 90 WHERE " + Where(1) +
               "; UPDATE rm.videos SET deleted_at = now(), version = 0 WHERE " + Where(2) +
               "; DELETE FROM rm.videos WHERE " + Where(3));
  EXPECT_THAT(found(), expected);

  std::string hard = kGroup;
  const std::string mark = "    deleted_at: deleted_at\n";
  Load(kDeclared, hard.replace(hard.find(mark), mark.size(), ""));
  replica_.Run("DELETE FROM rm.videos WHERE " + Where(1) + " OR " + Where(2) +
               "; INSERT INTO lockstep_state.row_versions (consumer_group, generation, projection,"
               " row_key, version, first_version, deleted_at) SELECT 'feed', s.generation,"
               " 'videos', ROW('t' || g, md5(g::text)::uuid)::text, CASE g WHEN 1 THEN 90 ELSE 0"
               " END, 0, now() FROM lockstep_state.slots s, generate_series(1, 2) g");
  EXPECT_THAT(found(), expected);
}

}  // namespace
}  // namespace lockstep::verify
