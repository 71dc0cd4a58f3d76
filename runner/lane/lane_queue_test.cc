#include "runner/lane/lane_queue.h"

#include <gmock/gmock.h>

#include <thread>

namespace lockstep::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

LaneQueue::Waiting Waiting(const std::string& token, const std::string& key, int64_t bytes = 1) {
  LaneQueue::Waiting waiting{.bytes = bytes};
  waiting.delivery.token = pubsub::AckToken(token);
  waiting.delivery.message.ordering_key = key;
  return waiting;
}

std::vector<std::string> Tokens(const std::vector<LaneQueue::Waiting>& taken) {
  std::vector<std::string> tokens;
  for (const auto& waiting : taken) tokens.push_back(waiting.delivery.token.value());
  return tokens;
}

void Push(LaneQueue& queue, std::initializer_list<LaneQueue::Waiting> waiting) {
  EXPECT_TRUE(queue.Push(std::vector<LaneQueue::Waiting>(waiting)).empty());
}

TEST(LaneQueue, TakesWhatHasQueuedInOrder) {
  LaneQueue queue;
  Push(queue, {Waiting("1", "a"), Waiting("2", "b"), Waiting("3", "a")});
  EXPECT_THAT(Tokens(queue.Take(2, 100, {})), ElementsAre("1", "2"));
  EXPECT_THAT(Tokens(queue.Take(2, 100, {})), ElementsAre("3"));
}

TEST(LaneQueue, KeepsABatchWithinItsBytesButTakesOneAlways) {
  LaneQueue queue;
  Push(queue, {Waiting("1", "a", 500), Waiting("2", "b", 10), Waiting("3", "a", 95)});
  EXPECT_THAT(Tokens(queue.Take(9, 100, {})), ElementsAre("1"));
  EXPECT_THAT(Tokens(queue.Take(9, 100, {})), ElementsAre("2"));
}

TEST(LaneQueue, LetsABatchGrowUntilItIsEnough) {
  LaneQueue queue;
  Push(queue, {Waiting("1", "a")});
  std::thread later([&] { Push(queue, {Waiting("2", "b"), Waiting("3", "c")}); });
  EXPECT_THAT(Tokens(queue.Take(9, 100, {.linger = Millis(60'000), .enough = 3})),
              ElementsAre("1", "2", "3"));
  later.join();
}

TEST(LaneQueue, TakesWhatThereIsWhenTheTimeToGatherIsOver) {
  LaneQueue queue;
  Push(queue, {Waiting("1", "a")});
  EXPECT_THAT(Tokens(queue.Take(9, 100, {.linger = Millis(1), .enough = 3})), ElementsAre("1"));
}

TEST(LaneQueue, AnswersNothingWhenWhatGatheredWasLost) {
  LaneQueue queue;
  Push(queue, {Waiting("1", "a")});
  queue.DropKeysOf({pubsub::AckToken("1")});
  EXPECT_THAT(queue.Take(9, 100, {.linger = Millis(60'000), .enough = 9}), IsEmpty());
  Push(queue, {Waiting("2", "b")});
  EXPECT_TRUE(queue.Await()) << "it is not closed";
}

TEST(LaneQueue, WakesForWhatIsDueAndHasItFirst) {
  LaneQueue queue;
  std::thread later([&] { queue.Release({"item/a"}); });
  EXPECT_TRUE(queue.Await());
  later.join();
  EXPECT_THAT(queue.TakeDue(), ElementsAre("item/a"));
  EXPECT_THAT(queue.TakeDue(), IsEmpty());
  queue.Release({"item/b"});
  queue.Close();
  EXPECT_TRUE(queue.Await()) << "what is in hand is finished";
  queue.Abandon();
  EXPECT_FALSE(queue.Await());
}

// 1,024 on four lanes: a lane's share is 256.
GroupOptions FourLanes(int max_batch) {
  GroupOptions options;
  options.lanes = 4;
  options.max_batch = max_batch;
  options.max_outstanding_messages = 1024;
  return options;
}

TEST(Gathering, SmallBatchesGrowWhileNearlyAllThatIsAllowedIsInHand) {
  const GroupOptions options = FourLanes(500);
  EXPECT_EQ(Gathering::For(options, 767).linger, Millis(0));
  EXPECT_GT(Gathering::For(options, 768).linger, Millis(0));
  EXPECT_EQ(Gathering::For(options, 1024).enough, 64);
}

TEST(Gathering, NeverWaitsForMoreThanABatch) {
  const GroupOptions options = FourLanes(10);
  EXPECT_EQ(Gathering::For(options, 1024).enough, 10);
}

TEST(Gathering, AConfiguredLingerIsKeptAsItIs) {
  GroupOptions options = FourLanes(500);
  options.linger = Millis(7);
  for (const int64_t in_hand : {0, 1024}) {
    EXPECT_EQ(Gathering::For(options, in_hand).linger, Millis(7));
    EXPECT_EQ(Gathering::For(options, in_hand).enough, 500);
  }
}

TEST(LaneQueue, DropsTheWholeKeyOfALostLease) {
  LaneQueue queue;
  Push(queue, {Waiting("1", "a"), Waiting("2", "b"), Waiting("3", "a"), Waiting("4", "")});
  const auto dropped = queue.DropKeysOf({pubsub::AckToken("1")});
  EXPECT_THAT(dropped, ElementsAre(pubsub::AckToken("1"), pubsub::AckToken("3")));
  EXPECT_THAT(Tokens(queue.Take(9, 100, {})), ElementsAre("2", "4"));
}

TEST(LaneQueue, DropsUnorderedMessagesOneByOne) {
  LaneQueue queue;
  Push(queue, {Waiting("1", ""), Waiting("2", "")});
  EXPECT_THAT(queue.DropKeysOf({pubsub::AckToken("1")}), ElementsAre(pubsub::AckToken("1")));
  EXPECT_THAT(Tokens(queue.Take(9, 100, {})), ElementsAre("2"));
}

TEST(LaneQueue, DrainsAfterItWasClosed) {
  LaneQueue queue;
  Push(queue, {Waiting("1", "a")});
  queue.Close();
  EXPECT_TRUE(queue.Await());
  EXPECT_THAT(Tokens(queue.Take(9, 100, {})), ElementsAre("1"));
  EXPECT_FALSE(queue.Await());
}

TEST(LaneQueue, TakesNothingOnceItWasAbandoned) {
  LaneQueue queue;
  Push(queue, {Waiting("1", "a")});
  EXPECT_EQ(queue.Abandon().size(), 1u);
  std::vector<LaneQueue::Waiting> late;
  late.push_back(Waiting("2", "a"));
  const auto refused = queue.Push(std::move(late));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused.front().value(), "2");
  EXPECT_EQ(queue.in_hand(), 0);
}

TEST(LaneQueue, WakesAWaitingTakerWhenItIsAbandoned) {
  LaneQueue queue;
  std::thread taker([&] { EXPECT_FALSE(queue.Await()); });
  queue.Abandon();
  taker.join();
}

}  // namespace
}  // namespace lockstep::runner
