#include "publisher/relay/topic_pauses.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace lockstep::publisher {
namespace {

constexpr SteadyTime kStart{std::chrono::hours(1)};

class TopicPausesTest : public ::testing::Test {
 protected:
  const RetryPolicy policy_{.jitter_amount = 0};
  TopicPauses pauses_{policy_, [] { return 0.5; }};
};

TEST_F(TopicPausesTest, GrowUntilTheTopicIsReached) {
  EXPECT_EQ(pauses_.Pause("t", kStart), Millis(1000));
  EXPECT_EQ(pauses_.Pause("t", kStart), std::nullopt) << "it is paused already";
  EXPECT_EQ(pauses_.Pause("t", kStart + Millis(1000)), Millis(2000));
  pauses_.Reached("t", kStart + Millis(3000));
  EXPECT_EQ(pauses_.Pause("t", kStart + Millis(9000)), Millis(1000));
}

TEST_F(TopicPausesTest, ThatWereAskedForAreNotEndedByWhatWasSentBeforeThem) {
  ASSERT_EQ(pauses_.Pause("t", kStart, Millis(5000)), Millis(5000));
  pauses_.Reached("t", kStart - Millis(1));
  EXPECT_THAT(pauses_.Paused(kStart + Millis(4999)), ::testing::ElementsAre("t"));
  pauses_.Reached("t", kStart);
  EXPECT_THAT(pauses_.Paused(kStart + Millis(1)), ::testing::IsEmpty());
}

TEST_F(TopicPausesTest, BecomeLongerWhenTheOtherSideAsksForIt) {
  ASSERT_EQ(pauses_.Pause("t", kStart), Millis(1000));
  EXPECT_EQ(pauses_.Pause("t", kStart, Millis(60'000)), std::nullopt);
  EXPECT_EQ(pauses_.Pause("t", kStart, Millis(2'000)), std::nullopt) << "and never shorter";
  EXPECT_THAT(pauses_.Paused(kStart + Millis(59'999)), ::testing::ElementsAre("t"));
}

TEST_F(TopicPausesTest, ATopicIsTriedWithSomeOfItsRowsBeforeMoreAreClaimed) {
  bool in_hand = true;
  const auto passed_over = [&](SteadyTime now) {
    return pauses_.ToPassOver(now, [&](const std::string&) { return in_hand; });
  };
  EXPECT_THAT(passed_over(kStart), ::testing::IsEmpty()) << "it was always reached";
  pauses_.Pause("t", kStart);
  EXPECT_THAT(passed_over(kStart + Millis(1)), ::testing::ElementsAre("t"));
  in_hand = false;
  EXPECT_THAT(passed_over(kStart + Millis(1000)), ::testing::IsEmpty());
  in_hand = true;
  EXPECT_THAT(passed_over(kStart + Millis(1000)), ::testing::ElementsAre("t"));
  pauses_.Reached("t", kStart + Millis(1001));
  EXPECT_THAT(passed_over(kStart + Millis(1002)), ::testing::IsEmpty());
}

// Whoever enqueues names topics, where the publisher lets every name pass.
TEST_F(TopicPausesTest, AreNoMoreThanAClaimCanName) {
  for (size_t i = 0; i < TopicPauses::kMost; ++i) {
    const std::string topic = fmt::format("t{}", i);
    ASSERT_TRUE(pauses_.HasRoomFor(topic, kStart));
    pauses_.Pause(topic, kStart);
  }
  EXPECT_FALSE(pauses_.HasRoomFor("another", kStart));
  EXPECT_TRUE(pauses_.HasRoomFor("t0", kStart)) << "it is one of them";
  EXPECT_TRUE(pauses_.HasRoomFor("another", kStart + Millis(1000))) << "they are over";
}

TEST(TopicPauses, LastAsLongAsTheOtherSideAsksForWithinBounds) {
  const RetryPolicy policy;
  TopicPauses pauses(policy, [] { return 0.0; });
  const SteadyTime now{};
  EXPECT_EQ(pauses.Pause("a", now, Millis(90'000)), Millis(90'000));
  EXPECT_EQ(pauses.Pause("b", now, Millis(0)), policy.base);
  EXPECT_EQ(pauses.Pause("c", now, Millis(24 * 3'600'000)), TopicPauses::kLongest);
  EXPECT_THAT(pauses.Paused(now + Millis(89'999)), ::testing::Contains("a"));
}

}  // namespace
}  // namespace lockstep::publisher
