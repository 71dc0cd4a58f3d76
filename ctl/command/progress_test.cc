#include "ctl/command/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ctl/group/follow_replay.h"

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

TEST(ProgressLine, IsABarWithRateAndTimeLeft) {
  Pace pace(kReplayPace);
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
