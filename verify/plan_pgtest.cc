// What is compared follows from the backfill's file and the group's; values; files; repairs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "projections/testing/test_group.h"
#include "tests/support/test_database.h"
#include "verify/deep.h"
#include "verify/exchange.h"
#include "verify/plan.h"
#include "verify/repair_plan.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kDeclared[] = R"(backfill: videos
outbox: catalog.outbox
topic: catalog.events
table: catalog.videos
key: [tenant, video_id]
aggregate_type: video
aggregate_id: video_id
version: version
tenant: tenant
event_type: VideoSaved
payload:
  fields: {id: video_id, title: title, seconds: seconds, price: price, tags: tags, raw: raw}
)";

constexpr char kGroup[] = R"(group: feed
subscription: videos.feed
projections:
  - name: videos
    table: rm.videos
    key:
      owner: {attribute: tenant_id}
      video: {field: id}
    version: version
    deleted_at: deleted_at
    events:
      VideoSaved:
        replace:
          title: title
          length: {field: seconds}
          price: price
          tags: {field: tags, as: jsonb}
          raw: raw
          kind: {value: film}
          seen_at: {now: true}
          event: {attribute: event_id}
      VideoGone: {delete: true}
  - name: totals
    table: rm.totals
    key: {owner: {attribute: tenant_id}}
    events:
      VideoSaved: {increment: {n: {value: 1}}}
)";

constexpr char kSource[] = R"(
CREATE SCHEMA catalog;
CREATE TABLE catalog.videos (tenant text, video_id uuid, version int NOT NULL, title text,
  seconds int, price numeric, tags jsonb, raw bytea, PRIMARY KEY (tenant, video_id));
INSERT INTO catalog.videos
SELECT 't' || g % 3, md5(g::text)::uuid, 1 + g % 4, nullif('title ' || g, 'title 7'), g, g / 4.0,
       jsonb_build_object('b', g, 'a', ARRAY[1, 2]), decode(md5(g::text), 'hex')
  FROM generate_series(1, 300) g)";

constexpr char kReplica[] = R"(
CREATE SCHEMA rm;
CREATE TABLE rm.videos (owner text, video uuid, version bigint, title varchar(40), length bigint,
  price numeric(8, 1), tags jsonb, raw text, kind text, seen_at timestamptz, event text,
  note text, deleted_at timestamptz, PRIMARY KEY (owner, video));
INSERT INTO rm.videos
SELECT 't' || g % 3, md5(g::text)::uuid, 1 + g % 4, nullif('title ' || g, 'title 7'), g, g / 4.0,
       jsonb_build_object('a', ARRAY[1, 2], 'b', g), encode(decode(md5(g::text), 'hex'), 'base64'),
       'film',
       now(), 'e', 'n', NULL
  FROM generate_series(1, 300) g)";

constexpr char kNoUuid[] = "00000000-0000-0000-0000-000000000000";

// Key texts of a row of both.
std::string Where(int g) { return fmt::format("video = md5('{}')::uuid", g); }

class VerifyPlanTest : public ::testing::Test {
 protected:
  void SetUp() override { Load(kDeclared, kGroup); }

  void Load(const std::string& declared, const std::string& group) {
    const projections::TempFile file("backfill.yaml", declared);
    auto loaded = publisher::LoadDeclaration(file.path());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    declaration_ = *std::move(loaded);
    auto of = projections::LoadText(group);
    ASSERT_TRUE(of.ok()) << of.status();
    group_ = *std::move(of);
  }
  void MakeTables() {
    source_.Run(kSource);
    replica_.Run(kReplica);
    at_source_ = source_.Connect();
    at_replica_ = replica_.Connect();
  }
  absl::StatusOr<std::vector<VerifyTable>> Plan(const std::string& projection = "") {
    return PlanVerify(declaration_, group_.projector->plan(), projection);
  }
  std::string PlanError(const std::string& projection = "") {
    return std::string(Plan(projection).status().message());
  }

  // "class key columns" of what a deep comparison finds.
  std::vector<std::string> Deep() {
    const VerifyTable table = Plan()->front();
    const auto types = ReadKeyTypes(*at_replica_, table.replica);
    EXPECT_TRUE(types.ok()) << types.status();
    VerifySide source(*at_source_, table.source, *types);
    VerifySide replica(*at_replica_, table.replica, *types);
    const auto deep = DeepCompare::Make(declaration_, *group_.projector, table, source, replica);
    EXPECT_TRUE(deep.ok()) << deep.status();
    if (!deep.ok()) return {};
    Verify verify(
        {.source = source,
         .replica = replica,
         .passed = [&](const std::stop_token&) { return passed_ ? passed_() : absl::OkStatus(); },
         .deep = [&](const KeyRange& range, auto* found) { return (*deep)->InRange(range, found); },
         .deep_keys = [&](const auto& keys, auto* found) { return (*deep)->OfKeys(keys, found); }},
        {.range_keys = 40});
    const auto result = verify.Run({});
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<std::string> lines;
    for (const Difference& one : result->differences) {
      lines.push_back(fmt::format("{} {} {}", Name(one.kind), one.key[1].substr(0, 8),
                                  fmt::join(one.columns, ",")));
      differences_.push_back(one);
    }
    return lines;
  }

  // What one side wrote, compared at the other.
  std::string Export(const std::vector<AskedRange>* ranges = nullptr) {
    const VerifyTable table = Plan()->front();
    const auto types = ReadKeyTypes(*at_source_, table.source);
    VerifySide side(*at_source_, table.source, *types);
    std::string text;
    const ExchangeHeader header{"videos", "videos", *types, newest_};
    const auto write = [&](const std::string& line) { text += line + "\n"; };
    EXPECT_EQ(ranges == nullptr ? ExportRanges(side, header, write)
                                : ExportKeys(side, header, *ranges, write),
              absl::OkStatus());
    return text;
  }
  absl::StatusOr<FileComparison> CompareFile(const std::string& text) {
    std::istringstream from(text);
    return CompareWithFile(from, Plan()->front(), "videos", *at_replica_,
                           [this](const FileSource& source, const std::stop_token&) {
                             file_source_ = source;
                             return absl::OkStatus();
                           },
                           {});
  }

  testing::TestDatabase source_, replica_;
  std::unique_ptr<postgres::Connection> at_source_, at_replica_;
  publisher::Declaration declaration_;
  projections::GroupDeclaration group_;
  std::function<absl::Status()> passed_;
  std::optional<publisher::PublishedEvent> newest_;  // of the next file
  FileSource file_source_;                           // of the last one
  std::vector<Difference> differences_;
};

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

TEST_F(VerifyPlanTest, AFileTellsWhichRangesDifferASecondOneWhichRows) {
  MakeTables();
  EXPECT_TRUE(CompareFile(Export())->result.equal());
  replica_.Run("DELETE FROM rm.videos WHERE " + Where(4) +
               "; UPDATE rm.videos SET version = 0 WHERE " + Where(5));
  source_.Run("DELETE FROM catalog.videos WHERE video_id = md5('10')::uuid");
  const auto first = CompareFile(Export());
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_THAT(first->ranges, SizeIs(1));
  std::string lines;
  for (const std::string& line : RangeLines(first->ranges)) lines += line + "\n";
  std::istringstream asked(lines);
  const auto ranges = ReadRanges(asked, 2);
  ASSERT_TRUE(ranges.ok()) << ranges.status();
  auto second = CompareFile(Export(&*ranges));
  ASSERT_TRUE(second.ok()) << second.status();
  // The row that only the replica has may be newer than the file.
  ASSERT_THAT(second->ranges, SizeIs(1));
  EXPECT_THAT(second->ranges[0].seen, SizeIs(1));
  EXPECT_THAT(second->result.differences, SizeIs(2));
  auto third = CompareFile(Export(&second->ranges));
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_THAT(third->ranges, IsEmpty());
  std::vector<std::string> found;
  for (const Difference& one : third->result.differences) found.emplace_back(Name(one.kind));
  EXPECT_THAT(found, ::testing::UnorderedElementsAre("missing", "behind", "ghost"));
}

TEST_F(VerifyPlanTest, ARangeOfManyRowsIsNotListedButAskedForInParts) {
  MakeTables();
  replica_.Run(
      "INSERT INTO rm.videos (owner, video, version) SELECT 't9', md5('x' || g)::uuid, 1 FROM "
      "generate_series(1, 25000) g");
  const auto first = CompareFile(Export());
  ASSERT_THAT(first->ranges, SizeIs(1));
  const auto second = CompareFile(Export(&first->ranges));
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_THAT(second->ranges, SizeIs(3));
  EXPECT_THAT(second->ranges[0].seen, IsEmpty());
  EXPECT_EQ(second->ranges[0].range.below, second->ranges[1].range.from);
  const auto third = CompareFile(Export(&second->ranges));
  ASSERT_THAT(third->ranges, SizeIs(3));
  EXPECT_GT(third->ranges[0].seen.size() + third->ranges[1].seen.size(), 10000u);
}

TEST_F(VerifyPlanTest, AFileThatWasCutOffOrIsOfSomethingElseIsRefused) {
  MakeTables();
  const std::string text = Export();
  const auto error = [&](const std::string& file) {
    return std::string(CompareFile(file).status().message());
  };
  EXPECT_THAT(error(""), HasSubstr("the file is empty"));
  EXPECT_THAT(error(text.substr(0, text.size() - 10)), HasSubstr("was it cut off?"));
  EXPECT_THAT(error(text.substr(0, text.find('\n') + 1)), HasSubstr("it was cut off"));
  const std::vector<AskedRange> both = {{{std::nullopt, RowKey{"t1", kNoUuid}}, {}},
                                        {{RowKey{"t1", kNoUuid}, std::nullopt}, {}}};
  const std::string keys = Export(&both);
  EXPECT_TRUE(CompareFile(keys).ok()) << CompareFile(keys).status();
  const size_t second = keys.find('\n', keys.find('\n') + 1) + 1;  // header and one range
  EXPECT_THAT(error(keys.substr(0, second)), HasSubstr("it was cut off"));
  EXPECT_THAT(error(keys.substr(0, second) + keys.substr(keys.rfind("{\"end\""))),
              HasSubstr("but its end says"));
  EXPECT_THAT(error(keys + "{}\n"), HasSubstr("goes on after its end"));
  std::istringstream asked(RangeLines(both)[0] + "\n");
  EXPECT_THAT(std::string(ReadRanges(asked, 2).status().message()), HasSubstr("it was cut off"));
  EXPECT_THAT(error("{}\n"), HasSubstr("none that this version"));
  std::string other = text;
  other.replace(other.find("\"videos\""), 8, "\"movies\"");
  EXPECT_THAT(error(other), HasSubstr("the file is of backfill movies"));
  std::string evil = text;
  evil.replace(evil.find("\"uuid\""), 6, "\"uuid) DROP\"");
  EXPECT_THAT(error(evil), HasSubstr("a type that is none of Postgres's own"));
}

}  // namespace
}  // namespace lockstep::verify
