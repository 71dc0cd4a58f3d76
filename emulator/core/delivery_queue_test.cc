#include "emulator/core/delivery_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::emulator {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class DeliveryQueueTest : public ::testing::Test {
 protected:
  void Use(const DeliveryPolicy& policy) {
    queue_ = std::make_unique<DeliveryQueue>(policy, 1, [this] { return can_dead_letter_; });
    consumer_ = queue_->Attach({}, "", {});
  }
  void UseOrdered() {
    DeliveryPolicy policy;
    policy.ordered = true;
    Use(policy);
  }

  MessagePtr Make(const std::string& id, const std::string& key = "") {
    auto message = std::make_shared<Message>();
    message->sequence = queue_->end();
    message->id = id;
    message->ordering_key = key;
    message->publish_time = wall_;
    message->wire = std::string(100, 'x');
    return message;
  }
  void Add(const std::string& id, const std::string& key = "") {
    queue_->Append(Make(id, key), true);
  }

  std::vector<Delivery> Take(Consumer* consumer = nullptr, size_t messages = 1000) {
    return queue_->Take(consumer == nullptr ? consumer_ : consumer, Budget{messages}, now_);
  }
  static std::vector<std::string> Ids(const std::vector<Delivery>& deliveries) {
    std::vector<std::string> ids;
    for (const auto& delivery : deliveries) ids.push_back(delivery.message->id);
    return ids;
  }
  AckOutcome Ack(const Delivery& delivery) {
    const auto outcome = queue_->Acknowledge(delivery.message->sequence, delivery.lease);
    queue_->Tidy();
    return outcome;
  }
  AckOutcome Nack(const Delivery& delivery) {
    return queue_->Release(delivery.message->sequence, delivery.lease, now_);
  }
  void Pass(Millis time) {
    now_ += time;
    wall_ += time;
    queue_->Advance(now_, wall_);
  }
  void SeekTo(WallTime time) {
    queue_->Replay(
        {}, [](const Message&) { return true; },
        [time](const Message& message) { return message.publish_time >= time; });
  }

  SteadyTime now_{hours(1)};
  WallTime wall_{hours(1'000'000)};
  bool can_dead_letter_ = true;
  std::unique_ptr<DeliveryQueue> queue_;
  Consumer* consumer_ = nullptr;
};

// A key with a long queue, in a consumer's hands or not, holds nothing back that is as old.
TEST_F(DeliveryQueueTest, EveryKeyHasItsTurn) {
  UseOrdered();
  for (int i = 0; i < 1000; ++i) {
    Add("hot" + std::to_string(i), "hot");
    if (i % 10 == 0) Add("other", "key" + std::to_string(i));
  }
  uint64_t last = 0;
  int hot = 0;
  while (hot < 1000) {
    const auto taken = Take(nullptr, 110);
    const auto others = std::count_if(taken.begin(), taken.end(),
                                      [](const Delivery& d) { return d.message->id == "other"; });
    EXPECT_GE(others, 5) << "after " << hot;
    EXPECT_LE(others, 20) << "after " << hot;
    for (const Delivery& delivery : taken) {
      if (delivery.message->ordering_key != "hot") continue;
      EXPECT_GT(delivery.message->sequence, last);
      last = delivery.message->sequence;
      ++hot;
    }
  }
}

TEST_F(DeliveryQueueTest, DeliversInOrderOnceUntilTheLeaseExpires) {
  Use({});
  Add("a");
  Add("b");
  EXPECT_THAT(Ids(Take()), ElementsAre("a", "b"));
  EXPECT_THAT(Take(), IsEmpty());
  Pass(seconds(9));
  EXPECT_THAT(Take(), IsEmpty());
  Pass(seconds(1));
  EXPECT_THAT(Ids(Take()), ElementsAre("a", "b"));
}

TEST_F(DeliveryQueueTest, AnExtendedLeaseExpiresLater) {
  Use({});
  Add("a");
  const auto taken = Take();
  Pass(seconds(9));
  EXPECT_EQ(queue_->Extend(1, taken[0].lease, now_ + seconds(30)), AckOutcome::kDone);
  Pass(seconds(29));
  EXPECT_THAT(Take(), IsEmpty());
  Pass(seconds(1));
  EXPECT_THAT(Take(), SizeIs(1));
}

TEST_F(DeliveryQueueTest, ALeaseCanBeShortened) {
  Use({});
  Add("a");
  EXPECT_EQ(queue_->Extend(1, Take()[0].lease, now_ + seconds(1)), AckOutcome::kDone);
  Pass(seconds(1));
  EXPECT_THAT(Take(), SizeIs(1));
}

TEST_F(DeliveryQueueTest, SaysWhenItWantsToBeCalled) {
  Use({});
  Add("a");
  EXPECT_EQ(queue_->NextDue(now_, wall_), now_ + hours(7 * 24));  // its retention
  Take();
  EXPECT_EQ(queue_->NextDue(now_, wall_), now_ + seconds(10));
}

TEST_F(DeliveryQueueTest, ALateAckStillCountsWithoutExactlyOnce) {
  Use({});
  Add("a");
  const auto taken = Take();
  Pass(seconds(10));
  EXPECT_EQ(Ack(taken[0]), AckOutcome::kDone);
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(DeliveryQueueTest, ExactlyOnceRefusesAStaleLeaseAndAcceptsARepeatedAck) {
  DeliveryPolicy policy;
  policy.exactly_once = true;
  Use(policy);
  Add("a");
  const auto first = Take();
  Pass(seconds(10));
  EXPECT_EQ(Ack(first[0]), AckOutcome::kInvalid);
  EXPECT_EQ(Nack(first[0]), AckOutcome::kInvalid);
  EXPECT_EQ(queue_->Extend(1, first[0].lease, now_ + seconds(10)), AckOutcome::kInvalid);
  const auto second = Take();
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(Ack(second[0]), AckOutcome::kDone);
  EXPECT_EQ(Ack(second[0]), AckOutcome::kDone);  // the client didn't hear the first answer
  EXPECT_EQ(Ack(first[0]), AckOutcome::kInvalid);
}

TEST_F(DeliveryQueueTest, ExactlyOnceWithOrderRefusesAcksOutOfOrder) {
  DeliveryPolicy policy;
  policy.exactly_once = true;
  policy.ordered = true;
  Use(policy);
  Add("a", "key");
  Add("b", "key");
  const auto taken = Take();
  EXPECT_EQ(Ack(taken[1]), AckOutcome::kUnordered);
  EXPECT_EQ(Ack(taken[0]), AckOutcome::kDone);
  EXPECT_EQ(Ack(taken[1]), AckOutcome::kDone);
}

TEST_F(DeliveryQueueTest, ARedeliveryTakesTheLaterMessagesOfItsKeyWithItAckedOnesToo) {
  UseOrdered();
  for (const char* id : {"1", "2", "3", "4"}) Add(id, "key");
  Add("other", "other");
  const auto taken = Take();
  ASSERT_THAT(Ids(taken), ElementsAre("1", "2", "3", "4", "other"));
  Ack(taken[2]);
  Nack(taken[1]);
  EXPECT_EQ(Ack(taken[3]), AckOutcome::kInvalid);  // its lease ended with the cascade
  EXPECT_THAT(Ids(Take()), ElementsAre("2", "3", "4"));
}

TEST_F(DeliveryQueueTest, TheCascadeStopsAtWhatWasAckedBeforeIt) {
  UseOrdered();
  for (const char* id : {"1", "2", "3"}) Add(id, "key");
  const auto taken = Take();
  Ack(taken[0]);
  Nack(taken[2]);
  EXPECT_THAT(Ids(Take()), ElementsAre("3"));
  Nack(taken[1]);
  EXPECT_THAT(Ids(Take()), ElementsAre("2", "3"));
}

TEST_F(DeliveryQueueTest, AnExpiredLeaseCascadesLikeANack) {
  UseOrdered();
  for (const char* id : {"1", "2", "3"}) Add(id, "key");
  const auto taken = Take();
  Ack(taken[1]);
  queue_->Extend(3, taken[2].lease, now_ + seconds(60));
  Pass(seconds(10));
  EXPECT_THAT(Ids(Take()), ElementsAre("1", "2", "3"));
}

TEST_F(DeliveryQueueTest, AKeyIsOnOneConsumerAtATime) {
  UseOrdered();
  Consumer* other = queue_->Attach({}, "", {});
  Add("1", "key");
  const auto first = Take();
  Add("2", "key");
  EXPECT_THAT(Take(other), IsEmpty());
  const auto second = Take();
  EXPECT_THAT(Ids(second), ElementsAre("2"));
  Ack(first[0]);
  Ack(second[0]);
  Add("3", "key");
  EXPECT_THAT(Ids(Take(other)), ElementsAre("3"));
}

TEST_F(DeliveryQueueTest, AKeyStaysWithAStreamThatEndedUntilItsLeasesAreOver) {
  UseOrdered();
  Add("1", "key");
  const auto taken = Take();
  queue_->Detach(consumer_);
  Consumer* other = queue_->Attach({}, "", {});
  Add("2", "key");
  EXPECT_THAT(Take(other), IsEmpty());
  Ack(taken[0]);
  EXPECT_THAT(Ids(Take(other)), ElementsAre("2"));
}

TEST_F(DeliveryQueueTest, AClientThatComesBackGetsItsKeysBack) {
  UseOrdered();
  Consumer* first = queue_->Attach({}, "client", {});
  Add("1", "key");
  Take(first);
  queue_->Detach(first);
  Add("2", "key");
  Consumer* again = queue_->Attach({}, "client", {});
  EXPECT_THAT(Ids(Take(again)), ElementsAre("2"));
}

TEST_F(DeliveryQueueTest, SpreadsTheLoad) {
  Use({});
  Consumer* other = queue_->Attach({}, "", {});
  for (int i = 0; i < 10; ++i) Add(std::to_string(i));
  EXPECT_THAT(Take(), SizeIs(5));
  EXPECT_GE(Take(other).size(), 3U);
}

TEST_F(DeliveryQueueTest, HonoursWhatAConsumerCanHold) {
  Use({});
  for (int i = 0; i < 10; ++i) Add(std::to_string(i));
  queue_->Detach(consumer_);
  Consumer* few = queue_->Attach({.max_messages = 2}, "", {});
  Consumer* small = queue_->Attach({.max_bytes = 250}, "", {});
  const auto taken = Take(few);
  EXPECT_THAT(taken, SizeIs(2));
  EXPECT_THAT(Take(few), IsEmpty());
  EXPECT_THAT(Take(small), SizeIs(3));  // the one that crosses the limit is still sent
  EXPECT_THAT(Take(small), IsEmpty());
  Ack(taken[0]);
  EXPECT_THAT(Take(few), SizeIs(1));
}

TEST_F(DeliveryQueueTest, BacksOffBetweenRedeliveries) {
  DeliveryPolicy policy;
  policy.min_backoff = seconds(1);
  policy.max_backoff = seconds(3);
  Use(policy);
  Add("a");
  for (const auto backoff : {seconds(1), seconds(2), seconds(3), seconds(3)}) {
    const auto taken = Take();
    ASSERT_THAT(taken, SizeIs(1));
    Nack(taken[0]);
    Pass(backoff - Millis(1));
    EXPECT_THAT(Take(), IsEmpty());
    Pass(Millis(1));
  }
  EXPECT_THAT(Take(), SizeIs(1));
}

TEST_F(DeliveryQueueTest, ABackoffHoldsTheWholeKeyAndNoOther) {
  DeliveryPolicy policy;
  policy.ordered = true;
  policy.min_backoff = seconds(1);
  policy.max_backoff = seconds(3);
  Use(policy);
  Add("1", "key");
  Add("2", "key");
  const auto taken = Take();
  Nack(taken[0]);
  Add("3", "key");
  Add("x", "other");
  EXPECT_THAT(Ids(Take()), ElementsAre("x"));
  Pass(seconds(1));
  EXPECT_THAT(Ids(Take()), ElementsAre("1", "2", "3"));
}

TEST_F(DeliveryQueueTest, DeadLettersAfterTheLastAttempt) {
  DeliveryPolicy policy;
  policy.ordered = true;
  policy.max_attempts = 5;
  Use(policy);
  Add("poison", "key");
  Add("next", "key");
  for (int attempt = 1; attempt <= 5; ++attempt) {
    const auto taken = Take();
    ASSERT_EQ(taken[0].message->id, "poison");
    EXPECT_EQ(taken[0].attempt, attempt);
    Nack(taken[0]);
  }
  const auto dead = queue_->TakeDeadLetters();
  ASSERT_THAT(dead, SizeIs(1));
  EXPECT_EQ(dead[0].message->id, "poison");
  EXPECT_EQ(dead[0].attempts, 5);
  Pass(seconds(10));
  EXPECT_THAT(Ids(Take()), ElementsAre("next"));
}

TEST_F(DeliveryQueueTest, KeepsTryingWhileTheDeadLetterTopicIsMissing) {
  can_dead_letter_ = false;
  DeliveryPolicy policy;
  policy.max_attempts = 5;
  Use(policy);
  Add("a");
  for (int i = 0; i < 7; ++i) Nack(Take()[0]);
  EXPECT_THAT(queue_->TakeDeadLetters(), IsEmpty());
  can_dead_letter_ = true;
  Nack(Take()[0]);
  EXPECT_THAT(queue_->TakeDeadLetters(), SizeIs(1));
}

TEST_F(DeliveryQueueTest, SeekBringsBackWhatWasRetainedFromThatTimeOn) {
  DeliveryPolicy policy;
  policy.retain_acked = true;
  policy.ordered = true;
  Use(policy);
  Add("old", "key");
  Pass(seconds(1));
  const WallTime time = wall_;
  Add("1", "key");
  Add("2", "key");
  for (const auto& delivery : Take()) Ack(delivery);
  SeekTo(time);
  EXPECT_THAT(Ids(Take()), ElementsAre("1", "2"));
}

TEST_F(DeliveryQueueTest, SeekAcksWhatIsOlderEvenIfItIsLeased) {
  Use({});
  Add("a");
  Take();
  Add("b");
  SeekTo(wall_ + seconds(1));
  EXPECT_THAT(Take(), IsEmpty());
  Pass(seconds(20));
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(consumer_->messages, 0);
}

TEST_F(DeliveryQueueTest, AnAckFromBeforeASeekCountsForNothingThatItBringsBack) {
  for (const bool exactly_once : {false, true}) {
    DeliveryPolicy policy;
    policy.retain_acked = true;
    policy.exactly_once = exactly_once;
    Use(policy);
    Add("a");
    Add("b");
    const auto taken = Take();
    SeekTo(wall_);
    EXPECT_EQ(Ack(taken[0]), AckOutcome::kInvalid);
    const auto again = Take();
    EXPECT_THAT(Ids(again), ElementsAre("a", "b"));
    EXPECT_EQ(Ack(taken[1]), AckOutcome::kInvalid);  // delivered again, and not acked since
    EXPECT_EQ(Ack(again[0]), AckOutcome::kDone);
    SeekTo(wall_ + seconds(1));
    EXPECT_EQ(Ack(again[0]), AckOutcome::kDone);  // it is acked: a repeated ack hears yes
  }
}

TEST_F(DeliveryQueueTest, SeekRefillsFromWhatTheTopicKept) {
  Use({});
  std::vector<MessagePtr> kept;
  for (const char* id : {"a", "b", "c"}) {
    kept.push_back(Make(id));
    queue_->Append(kept.back(), true);
  }
  for (const auto& delivery : Take()) Ack(delivery);
  queue_->Replay(
      kept, [](const Message& message) { return message.id != "b"; },
      [](const Message&) { return true; });
  EXPECT_THAT(Ids(Take()), ElementsAre("a", "c"));
}

TEST_F(DeliveryQueueTest, ForgetsWhatIsPastItsRetention) {
  DeliveryPolicy policy;
  policy.ordered = true;
  policy.retention = hours(1);
  Use(policy);
  Add("1", "key");
  const auto taken = Take();
  Pass(Millis(hours(1)) - Millis(1));
  Add("2", "key");
  Pass(Millis(1));
  EXPECT_THAT(Ids(Take()), ElementsAre("2"));
  EXPECT_EQ(Ack(taken[0]), AckOutcome::kInvalid);
}

TEST_F(DeliveryQueueTest, UnackedIsWhatASnapshotKeeps) {
  Use({});
  for (const char* id : {"a", "b", "c"}) Add(id);
  const auto taken = Take();
  Ack(taken[1]);
  std::vector<std::string> ids;
  for (const auto& message : queue_->Unacked()) ids.push_back(message->id);
  EXPECT_THAT(ids, ElementsAre("a", "c"));
}

TEST_F(DeliveryQueueTest, ForgetsTheLeasesOfAckedMessages) {
  Use({});
  for (int i = 0; i < 100; ++i) Add(std::to_string(i));
  for (const auto& delivery : Take()) Ack(delivery);
  EXPECT_EQ(queue_->NextDue(now_, wall_), std::nullopt);
}

}  // namespace
}  // namespace lockstep::emulator
