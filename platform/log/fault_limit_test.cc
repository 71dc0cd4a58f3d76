#include "platform/log/fault_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "platform/log/fault.h"

namespace lockstep::log {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr SteadyTime kBegin{std::chrono::hours(1)};
const LineKind kAway{.message = "away"};

TEST(FaultLimit, AFaultOfTenMinutesIsOneLineAndFewCounts) {
  FaultLimit limit;
  int written = 0, told = 0;
  int64_t counted = 0;
  for (int second = 0; second < 600; ++second) {
    const SteadyTime now = kBegin + std::chrono::seconds(second);
    for (const auto& due : limit.TakeDue(now)) ++told, counted += due.times;
    written += limit.Begins(kAway, now) ? 1 : 0;
  }
  for (const auto& due : limit.TakeDue(SteadyTime::max())) counted += due.times;
  EXPECT_EQ(written, 1);
  EXPECT_LE(told, 6) << "after 10 s, 20 s, 40 s …";
  EXPECT_GE(told, 4);
  EXPECT_EQ(counted, 599) << "each is written or counted";
}

TEST(FaultLimit, OneThatWasAwayForAMinuteIsAnotherFault) {
  FaultLimit limit;
  EXPECT_TRUE(limit.Begins(kAway, kBegin));
  EXPECT_FALSE(limit.Begins(kAway, kBegin + std::chrono::seconds(59)));
  EXPECT_THAT(limit.TakeDue(kBegin + std::chrono::seconds(70)), SizeIs(1));
  EXPECT_TRUE(limit.Begins(kAway, kBegin + std::chrono::seconds(130)));
  EXPECT_TRUE(limit.Begins({.message = "another"}, kBegin));
}

TEST(FaultLimit, IsBounded) {
  FaultLimit limit;
  int written = 0;
  for (int i = 0; i < 5'000; ++i) {
    const LineKind kind{.message = "away", .source = {{"error", std::to_string(i)}}};
    written += limit.Begins(kind, kBegin) ? 1 : 0;
  }
  EXPECT_EQ(written, 201) << "200, and one for all others";
}

TEST(Fault, IsOneLineWhoeverMeetsItAndNamesNothingEmpty) {
  Configure({});
  ::testing::internal::CaptureStderr();
  for (int lane = 0; lane < 8; ++lane) {
    Fault("a transaction failed", {{"group", "feed"},
                                   {"lane", lane},
                                   {"sqlstate", ""},
                                   {"error", fmt::format("server closed, pid {}", 4'000 + lane)}});
  }
  Fault("a transaction failed", {{"group", "other"}});
  TellRepeats(/*all=*/true);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_THAT(text, HasSubstr("group=feed lane=0 error=\"server closed, pid 4000\""));
  EXPECT_THAT(text, HasSubstr("msg=\"a transaction failed … repeated 7 times\" group=feed "
                              "error=\"server closed, pid …\" repeats=7"));
  EXPECT_THAT(text, Not(HasSubstr("sqlstate"))) << "what has no value is left out";
}

}  // namespace
}  // namespace lockstep::log
