#include "platform/duration.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Duration, IsReadAndWrittenAsPeopleWriteIt) {
  const std::pair<const char*, int64_t> cases[] = {{"0", 0},
                                                   {"250ms", 250},
                                                   {"1s", 1000},
                                                   {"1m", 60'000},
                                                   {"168h", 604'800'000},
                                                   {"31d", 31LL * 86'400'000},
                                                   {"1h30m", 5'400'000}};
  for (const auto& [text, ms] : cases) {
    ASSERT_TRUE(ParseDuration(text).ok()) << text;
    EXPECT_EQ(ParseDuration(text)->count(), ms) << text;
  }
  EXPECT_EQ(FormatDuration(Millis(250)), "250ms");
  EXPECT_EQ(FormatDuration(Millis(604'800'000)), "168h");
  EXPECT_EQ(FormatDuration(Millis(90'000)), "90s");
}

TEST(Duration, RefusesWhatHasNoUnit) {
  for (const char* text : {"", "5", "s", "5 s", "-1s", "1x", "99999999999999999999s"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(Bytes, AreReadWithTheirUnit) {
  EXPECT_EQ(*ParseBytes("64MiB"), 64 << 20);
  EXPECT_EQ(*ParseBytes("512"), 512);
  EXPECT_EQ(FormatBytes(64 << 20), "64MiB");
  EXPECT_FALSE(ParseBytes("64MB").ok());
}

TEST(Timestamp, KeepsMicroseconds) {
  const WallTime time(std::chrono::microseconds(1'700'000'000'123'456));
  EXPECT_EQ(FormatTimestamp(time), "2023-11-14T22:13:20.123456Z");
  EXPECT_EQ(*ParseTimestamp(FormatTimestamp(time)), time);
  EXPECT_FALSE(ParseTimestamp("yesterday").ok());
}

}  // namespace
}  // namespace lockstep
