#include "pubsub/google_cloud/key_fence.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::pubsub::google_cloud {
namespace {

class KeyFenceTest : public ::testing::Test {
 protected:
  bool Passes(const std::string& key, int id) {
    return !fence_.Arrived(key, MessageId(std::to_string(id)), now_).has_value();
  }
  void Raise(const std::string& key, int id) {
    fence_.Raise(key, MessageId(std::to_string(id)), now_);
  }

  SteadyTime now_ = SteadyTime(std::chrono::hours(1));
  KeyFence fence_;
};

TEST_F(KeyFenceTest, LetsEverythingPassUntilAMessageIsGivenBack) {
  EXPECT_TRUE(Passes("a", 1));
  EXPECT_TRUE(Passes("", 2));
}

TEST_F(KeyFenceTest, SendsSuccessorsBackUntilTheMessageReturns) {
  Raise("a", 3);
  EXPECT_FALSE(Passes("a", 4));
  EXPECT_FALSE(Passes("a", 5));
  EXPECT_TRUE(Passes("b", 6)) << "another key is free";
  EXPECT_TRUE(Passes("a", 3));
  EXPECT_TRUE(Passes("a", 4));
  EXPECT_TRUE(Passes("a", 5));
  EXPECT_EQ(fence_.size(), 0u);
}

TEST_F(KeyFenceTest, LetsThemPassInTheirFirstOrderOnly) {
  Raise("a", 3);
  EXPECT_FALSE(Passes("a", 4));
  EXPECT_FALSE(Passes("a", 5));
  EXPECT_TRUE(Passes("a", 3));
  EXPECT_FALSE(Passes("a", 5)) << "4 has not returned";
  EXPECT_FALSE(Passes("a", 6)) << "new, and later than both";
  EXPECT_TRUE(Passes("a", 4));
  EXPECT_FALSE(Passes("a", 6));
  EXPECT_TRUE(Passes("a", 5));
  EXPECT_TRUE(Passes("a", 6));
  EXPECT_EQ(fence_.size(), 0u);
}

TEST_F(KeyFenceTest, TakesAMessageThatIsGivenBackTwice) {
  Raise("a", 3);
  EXPECT_FALSE(Passes("a", 4));
  EXPECT_TRUE(Passes("a", 3));
  Raise("a", 3);
  EXPECT_FALSE(Passes("a", 4));
  EXPECT_TRUE(Passes("a", 3));
  EXPECT_TRUE(Passes("a", 4));
}

TEST_F(KeyFenceTest, KeepsItsPatienceWhileTheKeyMovesOn) {
  // Each message is given back once, and each time the rest of the key comes before it.
  for (int id = 0; id < 3 * KeyFence::kMaxReturns; ++id) {
    Raise("a", id);
    EXPECT_FALSE(Passes("a", 100)) << id;
    EXPECT_TRUE(Passes("a", id)) << id;
  }
  EXPECT_TRUE(Passes("a", 100));
}

TEST_F(KeyFenceTest, PausesLongerEachTimeAndGivesUpOnAMessageThatWasAckedElsewhere) {
  Raise("a", 3);
  std::vector<Millis> pauses;
  while (const auto pause = fence_.Arrived("a", MessageId("4"), now_)) pauses.push_back(*pause);
  EXPECT_EQ(pauses.size(), static_cast<size_t>(KeyFence::kMaxReturns));
  EXPECT_EQ(pauses.front(), Millis(0));
  EXPECT_TRUE(std::is_sorted(pauses.begin(), pauses.end()));
  EXPECT_TRUE(Passes("a", 5)) << "the fence is gone";
  EXPECT_EQ(fence_.size(), 0u);
}

TEST_F(KeyFenceTest, ForgetsKeysThatNeverCameBack) {
  Raise("a", 3);
  fence_.Sweep(now_ + std::chrono::minutes(5));
  EXPECT_EQ(fence_.size(), 1u);
  fence_.Sweep(now_ + std::chrono::minutes(20));
  EXPECT_EQ(fence_.size(), 0u);
}

TEST_F(KeyFenceTest, KnowsNoFenceForUnorderedMessages) {
  Raise("", 3);
  EXPECT_TRUE(Passes("", 4));
}

}  // namespace
}  // namespace lockstep::pubsub::google_cloud
