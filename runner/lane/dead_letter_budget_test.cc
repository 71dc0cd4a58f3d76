#include "runner/lane/dead_letter_budget.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace lockstep::runner {
namespace {

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
