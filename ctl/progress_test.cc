#include "ctl/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::ctl {
namespace {

using ::testing::HasSubstr;

TEST(About, NamesTwoUnitsAtMost) {
  EXPECT_EQ(About(Millis(0)), "0ms");
  EXPECT_EQ(About(Millis(999)), "999ms");
  EXPECT_EQ(About(Millis(1'540)), "1.5s");
  EXPECT_EQ(About(Millis(3'000)), "3s");
  EXPECT_EQ(About(Millis(73'428)), "73s");
  EXPECT_EQ(About(Millis(185'000)), "3m05s");
  EXPECT_EQ(About(Millis(4'327'381)), "1h12m");
  EXPECT_EQ(About(std::chrono::hours(75)), "3d03h");
}

// Looks every half second at a count that is told once a second, as runners do.
void Pass(Pace& pace, double from, double to, double per_second, int64_t& done) {
  for (double now = from; now < to; now += 0.5) {
    if (static_cast<int64_t>(now * 2) % 2 == 0) done += static_cast<int64_t>(per_second);
    pace.Note(now, done);
  }
}

TEST(Pace, IsHonestWithinAQuarterAfterTenSecondsHoweverLateTheStart) {
  for (const double late : {0.0, 3.0, 30.0}) {
    Pace pace;
    for (double now = 0; now < late; now += 0.5) pace.Note(now, 0);
    int64_t done = 0;
    Pass(pace, late, late + 10, 1000, done);
    EXPECT_NEAR(*pace.SecondsFor(90'000), 90, 9) << "after a wait of " << late;
  }
}

TEST(Pace, FollowsAChangeWithinAMinute) {
  Pace pace;
  int64_t done = 0;
  Pass(pace, 0, 600, 1000, done);
  Pass(pace, 600, 662, 5000, done);
  EXPECT_NEAR(pace.per_second(), 5000, 500);
}

TEST(Pace, IsNotLedAstrayByAMomentsNoise) {
  Pace pace;
  int64_t done = 0;
  Pass(pace, 0, 80, 1000, done);
  Pass(pace, 80, 90, 700, done);
  EXPECT_NEAR(pace.per_second(), 1000, 100);
}

TEST(Pace, ForeseesNothingWhileNothingMoves) {
  Pace pace;
  EXPECT_FALSE(pace.SecondsFor(1));
  int64_t done = 0;
  Pass(pace, 0, 20, 1000, done);
  for (double now = 20; now < 23; now += 0.5) pace.Note(now, done);
  EXPECT_TRUE(pace.SecondsFor(1)) << "two reports late are no standstill";
  for (double now = 23; now < 40; now += 0.5) pace.Note(now, done);
  EXPECT_FALSE(pace.SecondsFor(1));
  Pass(pace, 40, 45, 500, done);
  EXPECT_NEAR(pace.per_second(), 500, 100) << "the standstill is no part of it";
}

TEST(ProgressLine, IsABarWithRateAndTimeLeft) {
  Pace pace;
  pace.Note(0, 1'000);
  pace.Note(5, 251'000);
  EXPECT_EQ(ProgressLine(251'000, 1'000'000, pace),
            "[#######.......................]  25%  251000 of about 1000000  50000/s  15s left");
  EXPECT_THAT(ProgressLine(999'999, 1'000'000, pace), HasSubstr(" 99%"));
  EXPECT_THAT(ProgressLine(1'000'001, 1'000'000, pace), HasSubstr("100%"));
  EXPECT_THAT(ProgressLine(1'000'001, 1'000'000, pace), HasSubstr("caught up"));
  EXPECT_THAT(ProgressLine(0, 10, Pace()), HasSubstr("waiting for the first"));
  EXPECT_EQ(ProgressLine(251'000, 0, pace), "251000 applied  50000/s");
}

TEST(HandledByInstances, OnlyGrows) {
  HandledByInstances handled;
  handled.Note("one", 100);
  handled.Note("two", 50);
  handled.Note("one", 120);
  EXPECT_EQ(handled.sum(), 170);
  handled.Note("two", 60);  // and one is not heard of any more
  EXPECT_EQ(handled.sum(), 180);
  handled.Note("two", 5);  // it began a new session
  EXPECT_EQ(handled.sum(), 185);
}

}  // namespace
}  // namespace lockstep::ctl
