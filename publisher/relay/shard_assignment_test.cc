#include "publisher/relay/shard_assignment.h"

#include <gtest/gtest.h>

namespace lockstep::publisher {
namespace {

TEST(ShardAssignment, IsFollowedOnceAndTheLastOneCounts) {
  ShardAssignment assignment;
  EXPECT_FALSE(assignment.Follow());
  assignment.Set({0, 1}, 4);
  assignment.Set({2}, 4);
  EXPECT_FALSE(assignment.Has(2)) << "not before the relay follows";
  EXPECT_TRUE(assignment.Follow());
  EXPECT_TRUE(assignment.Has(2));
  EXPECT_FALSE(assignment.Has(0));
  EXPECT_EQ(assignment.count(), 4);
  EXPECT_FALSE(assignment.Follow());
}

TEST(ShardAssignment, AShardIsLeftBehindWhenTheRelayHasFollowedAndHasNoneOfItsRows) {
  ShardAssignment assignment;
  const int64_t first = assignment.Set({0}, 1);
  assignment.NoneLeft();
  EXPECT_FALSE(assignment.LeftBehind(first));
  assignment.Follow();
  EXPECT_FALSE(assignment.LeftBehind(first));
  assignment.NoneLeft();
  EXPECT_TRUE(assignment.LeftBehind(first));
  const int64_t second = assignment.Set({}, 1);
  EXPECT_TRUE(assignment.LeftBehind(first));
  EXPECT_FALSE(assignment.LeftBehind(second));
}

TEST(ShardAssignment, TheFirstShardSpeaksForTheOutbox) {
  ShardAssignment assignment;
  EXPECT_FALSE(assignment.has_first());
  assignment.Set({3, 0}, 4);
  assignment.Follow();
  EXPECT_TRUE(assignment.has_first());
  assignment.Set({3}, 4);
  assignment.Follow();
  EXPECT_FALSE(assignment.has_first());
}

}  // namespace
}  // namespace lockstep::publisher
