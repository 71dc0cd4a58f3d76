#include "platform/log/log_repeats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::log {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr SteadyTime kStart{std::chrono::hours(1)};

int Allowed(RepeatLimit& limit, const std::string& key, int lines, SteadyTime at) {
  int allowed = 0;
  for (int i = 0; i < lines; ++i) allowed += limit.Allow({.message = key}, at) ? 1 : 0;
  return allowed;
}

TEST(RepeatLimit, WritesABurstAndCountsTheRest) {
  RepeatLimit limit({.burst = 3, .interval = Millis(1'000)});
  EXPECT_EQ(Allowed(limit, "a", 126, kStart), 3);
  EXPECT_EQ(Allowed(limit, "b", 2, kStart), 2) << "another line is not held back";
  EXPECT_THAT(limit.TakeDue(kStart + Millis(999)), IsEmpty());
  const auto due = limit.TakeDue(kStart + Millis(1'000));
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_EQ(due[0].kind.message, "a");
  EXPECT_EQ(due[0].times, 123);
}

TEST(RepeatLimit, BeginsAnewOnceItHasTold) {
  RepeatLimit limit({.burst = 2, .interval = Millis(1'000)});
  Allowed(limit, "a", 5, kStart);
  EXPECT_THAT(limit.TakeDue(kStart + Millis(1'500)), SizeIs(1));
  EXPECT_THAT(limit.TakeDue(kStart + Millis(9'000)), IsEmpty()) << "told once";
  EXPECT_EQ(Allowed(limit, "a", 5, kStart + Millis(9'000)), 2);
}

TEST(RepeatLimit, ALineNowAndThenIsNeverHeldBack) {
  RepeatLimit limit({.burst = 1, .interval = Millis(1'000)});
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Allowed(limit, "a", 1, kStart + i * Millis(1'000)), 1);
  }
  EXPECT_THAT(limit.TakeDue(SteadyTime::max()), IsEmpty());
}

TEST(RepeatLimit, TellsWhatIsLeftAtTheEnd) {
  RepeatLimit limit({.burst = 1, .interval = Millis(1'000)});
  Allowed(limit, "a", 5, kStart);
  EXPECT_THAT(limit.TakeDue(SteadyTime::max()), SizeIs(1));
}

TEST(RepeatLimit, CanBeSwitchedOff) {
  RepeatLimit limit({.burst = 0});
  EXPECT_EQ(Allowed(limit, "a", 500, kStart), 500);
}

TEST(RepeatLimit, AnotherMessageIsWrittenHoweverManyThereAre) {
  RepeatLimit limit({.burst = 1, .interval = Millis(1'000)});
  for (int i = 0; i < 5'000; ++i) limit.Allow({.message = std::to_string(i)}, kStart);
  EXPECT_TRUE(limit.Allow({.message = "one more"}, kStart));
}

TEST(RepeatLimit, SourcesOfAllMessagesTogetherAreBounded) {
  RepeatLimit limit({.burst = 1, .interval = Millis(1'000)});
  int written = 0;
  for (int message = 0; message < 100; ++message) {
    for (int i = 0; i < 49; ++i) {
      const LineKind kind{.message = std::to_string(message),
                          .source = {{"topic", std::to_string(i)}}};
      written += limit.Allow(kind, kStart) ? 1 : 0;
    }
  }
  EXPECT_EQ(written, 1'000 + 80) << "of 4,900; and one of each message that came too late";
}

// A writer names topics: as many as it likes.
TEST(RepeatLimit, SourcesBeyondAFewAreCountedTogether) {
  RepeatLimit limit({.burst = 2, .interval = Millis(1'000)});
  int written = 0;
  for (int i = 0; i < 5'000; ++i) {
    const LineKind kind{.message = "dead", .source = {{"topic", std::to_string(i)}}};
    written += limit.Allow(kind, kStart) ? 1 : 0;
  }
  EXPECT_EQ(written, 52);
  EXPECT_TRUE(limit.Allow({.message = "alive", .source = {{"topic", "1"}}}, kStart));
  const auto due = limit.TakeDue(kStart + Millis(1'000));
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_THAT(due[0].kind.source, IsEmpty());
  EXPECT_EQ(due[0].times, 4'948);
}

}  // namespace
}  // namespace lockstep::log
