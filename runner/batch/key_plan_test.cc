#include "runner/batch/key_plan.h"

#include <gmock/gmock.h>

#include <vector>

namespace lockstep::runner {
namespace {

using ::testing::ElementsAre;

constexpr KeyRules kTracking{.track_versions = true};
constexpr KeyRules kLoose{.track_versions = false};

struct Planned {
  KeyRow row;
  std::vector<Fate> fates;
};

PlanItem Merging(int64_t version) { return {.version = version, .parks_on_gap = true}; }
PlanItem Replacing(int64_t version) { return {.version = version}; }
PlanItem Snapshot(int64_t version) { return {.version = version, .snapshot = true}; }
PlanItem Ending(int64_t version) {
  return {.version = version, .parks_on_gap = true, .ends = true};
}
PlanItem Poisoned(int64_t version) {
  return {.version = version, .poison = true, .parks_on_gap = true};
}

Planned Plan(const KeyRow& row, std::vector<PlanItem> items, const KeyRules& rules) {
  Planned planned{.row = PlanKey(row, items, rules)};
  for (const PlanItem& item : items) planned.fates.push_back(item.fate);
  return planned;
}

constexpr Fate kGap = Fate::kWaitsForPredecessor;
constexpr Fate kDead = Fate::kWaitsForDeadLetter;
constexpr Fate kApply = Fate::kApplied;

TEST(KeyPlan, TakesTheFirstVersionSeenAsTheBaseline) {
  const Planned planned = Plan({}, {Merging(7), Merging(8)}, kTracking);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, kApply));
  EXPECT_EQ(planned.row.settled, 8);
}

TEST(KeyPlan, GoesOnAnywhereOnceAfterAResetLeftVersionsOut) {
  const Planned planned =
      Plan({.settled = 5, .open = true}, {Merging(3), Merging(9), Merging(11)}, kTracking);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, kApply, kGap));
  EXPECT_EQ(planned.row.settled, 9);
  EXPECT_FALSE(planned.row.open);
  // What was settled before stays settled, however far back the next reset goes.
  EXPECT_TRUE(Plan({.settled = 5, .open = true}, {Merging(3), Merging(5)}, kTracking).row.open);
}

TEST(KeyPlan, ParksWhatSkipsItsPredecessorAndAllBehindIt) {
  const Planned planned = Plan({.settled = 1}, {Merging(3), Merging(4)}, kTracking);
  EXPECT_THAT(planned.fates, ElementsAre(kGap, kGap));
  EXPECT_EQ(planned.row.settled, 1);
}

TEST(KeyPlan, ReleasesTheWholeRunOnceThePredecessorComes) {
  const Planned planned =
      Plan({.settled = 1}, {Merging(2), Merging(3), Merging(4), Merging(6)}, kTracking);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, kApply, kApply, kGap));
  EXPECT_EQ(planned.row.settled, 4);
}

TEST(KeyPlan, LetsAReplacementThroughAGapAndReleasesWhatItSettles) {
  const Planned planned = Plan({.settled = 1}, {Merging(3), Replacing(5)}, kTracking);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, kApply));
  EXPECT_EQ(planned.row.settled, 5);
}

TEST(KeyPlan, SkipsADeadVersionOnlyWhenAllBeforeItAreSettled) {
  constexpr KeyRules kSkipping{.track_versions = true, .park_on_poison = false};
  const Planned early = Plan({.settled = 1}, {Poisoned(3), Merging(4)}, kSkipping);
  EXPECT_THAT(early.fates, ElementsAre(kGap, kGap));
  EXPECT_EQ(early.row.settled, 1);
  const Planned due = Plan({.settled = 1}, {Merging(2), Poisoned(3), Merging(4)}, kSkipping);
  EXPECT_THAT(due.fates, ElementsAre(kApply, Fate::kDead, kApply));
  EXPECT_EQ(due.row.settled, 4);
}

TEST(KeyPlan, AppliesOlderVersionsForTheGuardToJudge) {
  EXPECT_THAT(Plan({.settled = 9}, {Merging(3)}, kTracking).fates, ElementsAre(kApply));
}

TEST(KeyPlan, MakesLaterVersionsWaitForADeadOne) {
  const Planned planned = Plan({}, {Replacing(1), Poisoned(2), Replacing(3)}, kLoose);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, Fate::kDeadAndBlocking, kDead));
  EXPECT_EQ(planned.row.blocked, 2);
}

TEST(KeyPlan, SkipsADeadVersionWhenToldTo) {
  const KeyRules rules{.track_versions = true, .park_on_poison = false};
  const Planned planned = Plan({.settled = 1}, {Poisoned(2), Merging(3)}, rules);
  EXPECT_THAT(planned.fates, ElementsAre(Fate::kDead, kApply));
  EXPECT_EQ(planned.row.settled, 3);
  EXPECT_FALSE(planned.row.blocked);
}

TEST(KeyPlan, AppliesWhatComesBeforeTheDeadVersion) {
  const Planned planned = Plan({.settled = 1, .blocked = 3}, {Merging(2), Merging(4)}, kTracking);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, kDead));
  EXPECT_EQ(planned.row.settled, 2);
  EXPECT_EQ(planned.row.blocked, 3);
}

TEST(KeyPlan, LetsASecondDeadVersionDieBehindTheFirst) {
  const Planned planned = Plan({.blocked = 2}, {Poisoned(4)}, kLoose);
  EXPECT_THAT(planned.fates, ElementsAre(Fate::kDeadAndBlocking));
  EXPECT_EQ(planned.row.blocked, 2);
}

// follow_versions where nothing parks on a gap: what is applied, waits or dies stays the same.
TEST(KeyPlan, FollowsVersionsWithoutMindingGaps) {
  constexpr KeyRules kFollowing{.track_versions = true, .gaps = false};
  const Planned planned =
      Plan({.settled = 1}, {Replacing(5), Poisoned(7), Replacing(8)}, kFollowing);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, Fate::kDeadAndBlocking, kDead));
  EXPECT_EQ(planned.row.settled, 5);
  EXPECT_EQ(planned.row.blocked, 7);
  constexpr KeyRules kSkipping{.track_versions = true, .gaps = false, .park_on_poison = false};
  const Planned skipped = Plan({.settled = 1}, {Poisoned(7)}, kSkipping);
  EXPECT_THAT(skipped.fates, ElementsAre(Fate::kDead));
}

TEST(KeyPlan, ASnapshotWaitsForNothingAndSettlesItsVersion) {
  const Planned planned = Plan({.settled = 1}, {Snapshot(5), Merging(6), Merging(8)}, kTracking);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, kApply, kGap));
  EXPECT_EQ(planned.row.settled, 6);
  EXPECT_EQ(planned.row.snapshot, 5);
  // Past a dead version, too: it has nothing to wait for.
  EXPECT_THAT(
      Plan({.settled = 1, .blocked = 7}, {Snapshot(5), Merging(6), Merging(8)}, kTracking).fates,
      ElementsAre(kApply, kApply, kDead));
}

TEST(KeyPlan, ASnapshotReleasesWhatCameBeforeItAndWhatFollows) {
  const Planned planned =
      Plan({.settled = 1}, {Merging(3), Snapshot(5), Merging(5), Merging(6)}, kTracking);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, kApply, kApply, kApply));
  EXPECT_EQ(planned.row.settled, 6);
}

TEST(KeyPlan, AnOldSnapshotSettlesNothingBack) {
  const Planned planned = Plan({.settled = 9, .snapshot = 7}, {Snapshot(5)}, kTracking);
  EXPECT_EQ(planned.row.settled, 9);
  EXPECT_EQ(planned.row.snapshot, 7);
}

TEST(KeyPlan, NothingWaitsForADeadVersionThatASnapshotStandsFor) {
  for (const KeyRules& rules : {kTracking, kLoose}) {
    const Planned together = Plan({}, {Poisoned(4), Snapshot(5), Replacing(6)}, rules);
    EXPECT_THAT(together.fates, ElementsAre(Fate::kDead, kApply, kApply));
    EXPECT_FALSE(together.row.blocked);
    const Planned later = Plan(Plan({}, {Snapshot(5)}, rules).row, {Poisoned(4)}, rules);
    EXPECT_THAT(later.fates, ElementsAre(Fate::kDead));
    EXPECT_FALSE(later.row.blocked);
  }
}

// It does not tell where the events go on after a reset that left some out.
TEST(KeyPlan, ASnapshotLeavesTheNextVersionOpenAfterAReset) {
  const Planned planned = Plan({.settled = 5, .open = true}, {Snapshot(9)}, kTracking);
  EXPECT_EQ(planned.row.settled, 9);
  EXPECT_TRUE(planned.row.open);
  EXPECT_THAT(Plan(planned.row, {Merging(12), Merging(14)}, kTracking).fates,
              ElementsAre(kApply, kGap));
}

TEST(KeyPlan, WaitsForTheFirstVersionOrASnapshotWhereToldTo) {
  constexpr KeyRules kWhole{.track_versions = true, .from_the_first = true};
  const Planned early = Plan({}, {Merging(6)}, kWhole);
  EXPECT_THAT(early.fates, ElementsAre(kGap));
  EXPECT_EQ(early.row.settled, 0);
  EXPECT_THAT(Plan(early.row, {Snapshot(5), Merging(6)}, kWhole).fates,
              ElementsAre(kApply, kApply));
  EXPECT_THAT(Plan({}, {Merging(1), Merging(2)}, kWhole).fates, ElementsAre(kApply, kApply));
  EXPECT_THAT(Plan({}, {Replacing(6), Merging(7)}, kWhole).fates, ElementsAre(kApply, kApply));
}

// After it the row is known, whatever it was before.
TEST(KeyPlan, ADeleteBeginsAnAggregateOfWhichNothingIsKnown) {
  constexpr KeyRules kWhole{.track_versions = true, .from_the_first = true};
  const Planned planned = Plan({}, {Merging(6), Ending(7), Merging(8), Merging(10)}, kWhole);
  EXPECT_THAT(planned.fates, ElementsAre(kApply, kApply, kApply, kGap));
  EXPECT_EQ(planned.row.settled, 8);
  EXPECT_THAT(
      Plan({.exists = true, .settled = 0, .parked = 1}, {Merging(6), Ending(7)}, kWhole).fates,
      ElementsAre(kApply, kApply));
}

TEST(KeyPlan, ADeleteBeginsNothingPastAGapADeadVersionOrWhatIsKnown) {
  constexpr KeyRules kWhole{.track_versions = true, .from_the_first = true};
  EXPECT_THAT(Plan({}, {Merging(5), Ending(7)}, kWhole).fates, ElementsAre(kGap, kGap));
  EXPECT_THAT(Plan({}, {Merging(5), Poisoned(6), Ending(7)}, kWhole).fates,
              ElementsAre(kGap, Fate::kDeadAndBlocking, kDead));
  const Planned behind = Plan({.settled = 0, .blocked = 5}, {Merging(6), Ending(7)}, kWhole);
  EXPECT_THAT(behind.fates, ElementsAre(kDead, kDead));
  EXPECT_EQ(behind.row.settled, 0) << "replayed, the dead one needs a beginning, too";
  EXPECT_THAT(Plan({.settled = 0, .blocked = 8}, {Merging(6), Ending(7)}, kWhole).fates,
              ElementsAre(kApply, kApply));
  EXPECT_THAT(Plan({.settled = 3, .snapshot = 3}, {Merging(6), Ending(7)}, kWhole).fates,
              ElementsAre(kGap, kGap));
  EXPECT_THAT(Plan({}, {Snapshot(3), Merging(6), Ending(7)}, kWhole).fates,
              ElementsAre(kApply, kGap, kGap));
  EXPECT_THAT(Plan({.settled = 2}, {Ending(7)}, kTracking).fates, ElementsAre(kGap));
}

TEST(KeyPlan, DoesNotBlockOnADeadVersionThatWasSettledLongAgo) {
  const Planned planned = Plan({.settled = 5}, {Poisoned(3), Merging(6)}, kTracking);
  EXPECT_THAT(planned.fates, ElementsAre(Fate::kDead, kApply));
  EXPECT_FALSE(planned.row.blocked);
}

}  // namespace
}  // namespace lockstep::runner
