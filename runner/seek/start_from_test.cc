#include "runner/seek/start_from.h"

#include <gtest/gtest.h>

#include "platform/duration.h"
#include "runner/lane/dead_letter_budget.h"
#include "runner/options/group_options.h"
#include "tests/support/fake_clock.h"

namespace lockstep::runner {
namespace {

using state::SeekKind;

TEST(StartFrom, UnderstandsEveryWord) {
  const WallTime now = *ParseTimestamp("2026-01-31T12:00:00Z");
  EXPECT_EQ(ParseStartFrom("committed", now)->kind, SeekKind::kNone);
  EXPECT_EQ(ParseStartFrom("latest", now)->time, now);
  EXPECT_LT(ParseStartFrom("earliest", now)->time, now - std::chrono::hours(24 * 31));
  EXPECT_EQ(ParseStartFrom("2026-01-30T12:00:00Z", now)->time, now - std::chrono::hours(24));
  EXPECT_EQ(ParseStartFrom("snapshot:s1", now)->snapshot, "s1");
  EXPECT_FALSE(ParseStartFrom("yesterday", now).ok());
  EXPECT_FALSE(ParseStartFrom("snapshot:", now).ok());
}

TEST(StartFrom, IsCheckedBeforeTheStart) {
  GroupOptions options;
  options.name = "feed";
  options.subscription = "items.feed";
  for (const char* word : {"committed", "checkpoint", "latest"}) {
    options.start_from = word;
    EXPECT_TRUE(options.Validate().ok()) << word;
  }
  options.start_from = "yesterday";
  EXPECT_FALSE(options.Validate().ok());
  options.start_from = "latest";
  options.ack_fence = Millis(0);  // no ack would be in time
  EXPECT_FALSE(options.Validate().ok());
  options.ack_fence = Millis(100);
  options.seek_takeover = Millis(0);
  EXPECT_FALSE(options.Validate().ok());
}

TEST(DeadLetterBudget, ForgetsWhatIsOlderThanItsWindow) {
  testing::FakeClock clock;
  DeadLetterBudget budget(2, Millis(1000), clock);
  budget.Spend(2);
  EXPECT_EQ(budget.Left(), 0);
  clock.Advance(Millis(1001));
  EXPECT_EQ(budget.Left(), 2);
}

TEST(DeadLetterBudget, HasNoLimitAtZero) {
  DeadLetterBudget budget(0, Millis(1000));
  budget.Spend(1000);
  EXPECT_GE(budget.Left(), 1000);
}

}  // namespace
}  // namespace lockstep::runner
