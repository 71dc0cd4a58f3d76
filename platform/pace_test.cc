#include "platform/pace.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace lockstep {
namespace {

constexpr Pace::Options kSteps{.longest = 60, .in_steps = true};

TEST(Pace, IsTheChangeOverItsWindow) {
  Pace pace({.shortest = 4, .longest = 4});
  pace.Note(0, 100);
  EXPECT_FALSE(pace.per_second());
  for (int now = 1; now <= 10; ++now) pace.Note(now, 100);
  EXPECT_EQ(pace.per_second(), 0);
  EXPECT_FALSE(pace.SecondsFor(-100));
  for (int now = 11; now <= 14; ++now) pace.Note(now, 100 - 5 * (now - 10));
  EXPECT_EQ(pace.per_second(), -5);
  EXPECT_EQ(pace.SecondsFor(-80), 16);
  EXPECT_FALSE(pace.SecondsFor(80)) << "it moves the other way";
}

// Looks every half second at a count that is told once a second, as runners do.
void Pass(Pace& pace, double from, double to, double per_second, int64_t& done) {
  for (double now = from; now < to; now += 0.5) {
    if (static_cast<int64_t>(now * 2) % 2 == 0) done += static_cast<int64_t>(per_second);
    pace.Note(now, static_cast<double>(done));
  }
}

TEST(Pace, IsHonestWithinAQuarterAfterTenSecondsHoweverLateTheStart) {
  for (const double late : {0.0, 3.0, 30.0}) {
    Pace pace(kSteps);
    for (double now = 0; now < late; now += 0.5) pace.Note(now, 0);
    int64_t done = 0;
    Pass(pace, late, late + 10, 1000, done);
    EXPECT_NEAR(*pace.SecondsFor(90'000), 90, 9) << "after a wait of " << late;
  }
}

TEST(Pace, FollowsAChangeWithinAMinute) {
  Pace pace(kSteps);
  int64_t done = 0;
  Pass(pace, 0, 600, 1000, done);
  Pass(pace, 600, 662, 5000, done);
  EXPECT_NEAR(*pace.per_second(), 5000, 500);
}

TEST(Pace, IsNotLedAstrayByAMomentsNoise) {
  Pace pace(kSteps);
  int64_t done = 0;
  Pass(pace, 0, 80, 1000, done);
  Pass(pace, 80, 90, 700, done);
  EXPECT_NEAR(*pace.per_second(), 1000, 100);
}

TEST(Pace, ForeseesNothingWhileNothingMoves) {
  Pace pace(kSteps);
  EXPECT_FALSE(pace.SecondsFor(1));
  int64_t done = 0;
  Pass(pace, 0, 20, 1000, done);
  for (double now = 20; now < 23; now += 0.5) pace.Note(now, static_cast<double>(done));
  EXPECT_TRUE(pace.SecondsFor(1)) << "two reports late are no standstill";
  for (double now = 23; now < 40; now += 0.5) pace.Note(now, static_cast<double>(done));
  EXPECT_FALSE(pace.SecondsFor(1));
  Pass(pace, 40, 45, 500, done);
  EXPECT_NEAR(*pace.per_second(), 500, 100) << "the standstill is no part of it";
}

}  // namespace
}  // namespace lockstep
