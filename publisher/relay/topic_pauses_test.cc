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
  pauses_.Reached("t");
  EXPECT_EQ(pauses_.Pause("t", kStart + Millis(9000)), Millis(1000));
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

}  // namespace
}  // namespace lockstep::publisher
