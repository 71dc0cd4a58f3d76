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

// The common form is read by hand: it must read as absl reads it.
TEST(Timestamp, ReadsTheCommonFormAsAnyOther) {
  for (const char* text :
       {"1970-01-01T00:00:00Z", "2024-02-29T23:59:59.1Z", "2026-11-16T12:00:00.123456Z",
        "2261-12-31T23:59:59.999999999Z", "2026-01-31T12:00:00.000000001Z"}) {
    std::string same = text;
    same.replace(same.size() - 1, 1, "+00:00");
    ASSERT_TRUE(ParseTimestamp(text).ok()) << text;
    EXPECT_EQ(*ParseTimestamp(text), *ParseTimestamp(same)) << text;
  }
  for (const char* text :
       {"2023-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z", "-026-01-01T00:00:00Z", "2026-01-01T00:00:0xZ"}) {
    EXPECT_FALSE(ParseTimestamp(text).ok()) << text;
  }
  EXPECT_EQ(*ParseTimestamp("2026-01-01T02:00:00+02:00"), *ParseTimestamp("2026-01-01T00:00:00Z"));
}

TEST(Timestamp, KeepsMicroseconds) {
  const WallTime time(std::chrono::microseconds(1'700'000'000'123'456));
  EXPECT_EQ(FormatTimestamp(time), "2023-11-14T22:13:20.123456Z");
  EXPECT_EQ(*ParseTimestamp(FormatTimestamp(time)), time);
  for (const char* finer : {"2023-11-14T22:13:20.1234569Z", "2023-11-14T22:13:20.1234569+00:00"}) {
    EXPECT_EQ(*ParseTimestamp(finer), time) << finer;
  }
  EXPECT_FALSE(ParseTimestamp("yesterday").ok());
  for (const char* text :
       {"2320-01-04T22:13:56Z", "2262-01-01T00:00:00Z", "1677-12-31T23:59:59Z", "infinite-past"}) {
    EXPECT_FALSE(ParseTimestamp(text).ok()) << text;
  }
  EXPECT_TRUE(ParseTimestamp("2261-12-31T23:59:59.999999Z").ok());
  EXPECT_EQ(FormatTimestamp(*ParseTimestamp("1678-01-01T00:00:00Z")),
            "1678-01-01T00:00:00.000000Z");
}

}  // namespace
}  // namespace lockstep
