// Comparisons by files, where the source's database is out of reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "verify/testing/verify_plan_test.h"

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kNoUuid[] = "00000000-0000-0000-0000-000000000000";

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
  // The row that only the replica has may be newer than the file, and the one that it has not may
  // have been deleted since.
  ASSERT_THAT(second->ranges, SizeIs(1));
  EXPECT_THAT(second->ranges[0].seen, SizeIs(1));
  EXPECT_THAT(second->ranges[0].absent, SizeIs(1));
  ASSERT_THAT(second->result.differences, SizeIs(1));
  EXPECT_EQ(second->result.differences[0].kind, DifferenceKind::kBehind);
  auto third = CompareFile(Export(&second->ranges));
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_THAT(third->ranges, IsEmpty());
  std::vector<std::string> found;
  for (const Difference& one : third->result.differences) found.emplace_back(Name(one.kind));
  EXPECT_THAT(found, ::testing::UnorderedElementsAre("missing", "behind", "ghost"));
}

TEST_F(VerifyPlanTest, ARowThatWasDeletedSinceTheFileWasMadeIsNotMissing) {
  MakeTables();
  source_.Run("UPDATE catalog.videos SET version = 90 WHERE video_id = md5('3')::uuid");
  const std::vector<AskedRange> all = {{{}}};
  const std::string made = Export(&all);
  const auto gone = [](int g) {
    return fmt::format("DELETE FROM catalog.videos WHERE video_id = md5('{}')::uuid;", g);
  };
  source_.Run(gone(1) + gone(2));
  replica_.Run("DELETE FROM rm.videos WHERE " + Where(1) + " OR " + Where(2) + " OR " + Where(4));
  const auto first = CompareFile(made);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_THAT(first->result.differences, SizeIs(1));
  EXPECT_EQ(first->result.differences[0].kind, DifferenceKind::kBehind);
  ASSERT_THAT(first->ranges, SizeIs(1));
  EXPECT_THAT(first->ranges[0].absent, SizeIs(3));
  // The one is gone, another was made anew and may be under way, the third is still there.
  source_.Run(
      "INSERT INTO catalog.videos (tenant, video_id, version) VALUES ('t2', md5('2')::uuid, 50)");
  const auto second = CompareFile(Export(&first->ranges));
  ASSERT_TRUE(second.ok()) << second.status();
  std::vector<std::string> found;
  for (const Difference& one : second->result.differences) {
    found.push_back(fmt::format("{} {}", Name(one.kind), one.key[1].substr(0, 8)));
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAre("missing a87ff679", "behind eccbc87e"));
  ASSERT_THAT(second->ranges, SizeIs(1));
  EXPECT_THAT(second->ranges[0].absent, SizeIs(1));
}

// Else a row could be in the file whose event is none that the other side waits for.
TEST_F(VerifyPlanTest, WhatIsPublishedIsAskedForOnceTheRowsAreRead) {
  MakeTables();
  const std::vector<AskedRange> all = {{{}}};
  published_ = [&] { source_.Run("UPDATE catalog.videos SET version = version + 1"); };
  for (const auto* const ranges : {static_cast<const std::vector<AskedRange>*>(nullptr), &all}) {
    const auto compared = CompareFile(Export(ranges));
    ASSERT_TRUE(compared.ok()) << compared.status();
    EXPECT_TRUE(compared->result.equal());
    EXPECT_THAT(compared->ranges, IsEmpty());
    source_.Run("UPDATE catalog.videos SET version = version - 1");
  }
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

// Memory, and the next file, would grow with what only the replica has.
TEST_F(VerifyPlanTest, OfVeryManyRowsThatOnlyTheReplicaHasSomeAreListedAtATime) {
  MakeTables();
  replica_.Run(
      "INSERT INTO rm.videos (owner, video, version) SELECT 't9', md5('x' || g)::uuid, 1 FROM "
      "generate_series(1, 230000) g");
  const auto first = CompareFile(Export());
  const auto second = CompareFile(Export(&first->ranges));
  const auto third = CompareFile(Export(&second->ranges));
  ASSERT_TRUE(third.ok()) << third.status();
  ASSERT_EQ(third->ranges.size(), second->ranges.size());
  size_t seen = 0;
  for (const AskedRange& one : third->ranges) seen += one.seen.size();
  EXPECT_GT(seen, 150'000u);
  EXPECT_LE(seen, 200'000u);
  // What was seen twice is decided, and makes room.
  const auto fourth = CompareFile(Export(&third->ranges));
  ASSERT_TRUE(fourth.ok()) << fourth.status();
  EXPECT_EQ(fourth->result.differences.size(), seen);
  EXPECT_LT(fourth->ranges.size(), third->ranges.size());
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
