#include "publisher/relay/look_plan.h"

#include <gtest/gtest.h>

namespace lockstep::publisher {
namespace {

// A plan and a clock. A look from the start takes `start_cost_`, another 2 ms.
class LookPlanTest : public ::testing::Test {
 protected:
  static bool AtStart(const ClaimCursor& cursor) {
    return cursor.available_at == ClaimCursor().available_at;
  }

  // One claim; answers whether it looked from the start.
  bool Look(bool full = false) {
    const SteadyTime began = now_;
    ClaimCursor& cursor = plan_.Next(began);
    const bool from_start = AtStart(cursor);
    from_ = cursor.available_at;
    cursor.available_at = "the last candidate's";  // as ClaimRows does
    now_ += from_start ? start_cost_ : Millis(2);
    plan_.Looked(began, now_, full, "a second ago");
    return from_start;
  }

  LookPlan plan_;
  SteadyTime now_{std::chrono::hours(1)};
  Millis start_cost_{5};
  std::string from_;
};

TEST_F(LookPlanTest, EveryLookThatFollowsNothingStartsAtTheStart) {
  EXPECT_FALSE(plan_.UntilStart(now_).has_value()) << "before the first look";
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Look());
    EXPECT_TRUE(plan_.whole());
    EXPECT_FALSE(plan_.UntilStart(now_).has_value());
    EXPECT_TRUE(AtStart(plan_.floor()));
  }
}

TEST_F(LookPlanTest, UnderLoadClaimsGoOnAndComeBackToTheStart) {
  EXPECT_TRUE(Look(/*full=*/true));
  int went_on = 0;
  while (!Look(/*full=*/true)) {
    EXPECT_EQ(from_, "the last candidate's");
    ++went_on;
  }
  EXPECT_EQ(went_on, 98);  // 200 ms
}

TEST_F(LookPlanTest, ASlowStartIsLookedFromForATenthOfTheTime) {
  start_cost_ = Millis(500);
  const SteadyTime began = now_;
  int from_start = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (Look()) {
      ++from_start;
    } else {
      EXPECT_EQ(from_, "a second ago");
    }
  }
  EXPECT_GT(from_start, 3);
  EXPECT_LT(from_start * start_cost_ * 9, now_ - began);
}

TEST_F(LookPlanTest, AfterALookThatWasNotWholeTheStartIsDueInTime) {
  start_cost_ = Millis(500);
  EXPECT_TRUE(Look());
  EXPECT_TRUE(plan_.whole());
  EXPECT_FALSE(Look());
  EXPECT_FALSE(plan_.whole());
  EXPECT_FALSE(AtStart(plan_.floor()));
  const auto due = plan_.UntilStart(now_);
  ASSERT_TRUE(due.has_value());
  EXPECT_GT(*due, Millis(4'400));
  EXPECT_LE(*due, Millis(5'001));
  now_ += *due;
  start_cost_ = Millis(3);  // the snapshot has ended
  EXPECT_TRUE(Look());
  EXPECT_TRUE(plan_.whole());
  EXPECT_TRUE(Look()) << "cheap again";
}

TEST_F(LookPlanTest, HoweverSlowTheStartIsLookedFromEveryMinute) {
  start_cost_ = Millis(15'000);
  Look();
  Look();
  EXPECT_LE(*plan_.UntilStart(now_), Millis(60'001));
}

TEST_F(LookPlanTest, ARowOfClaimsIsWholeWhenItsFirstBeganAtTheStart) {
  start_cost_ = Millis(30);
  EXPECT_TRUE(Look(/*full=*/true));
  EXPECT_FALSE(Look(/*full=*/true));
  EXPECT_FALSE(Look());
  EXPECT_TRUE(plan_.whole());
  EXPECT_FALSE(Look());
  EXPECT_EQ(from_, "a second ago");
  EXPECT_FALSE(plan_.whole());
}

}  // namespace
}  // namespace lockstep::publisher
