#include "runner/lane/ack_stage.h"

#include <gtest/gtest.h>

namespace lockstep::runner {
namespace {

class CountingReceiver : public pubsub::Receiver {
 public:
  absl::Status Start() override { return absl::OkStatus(); }
  void Stop() override {}
  void Acknowledge(std::vector<pubsub::AckToken> tokens, Done) override {
    acked += tokens.size();
    last = tokens.back();
  }
  void Release(std::vector<pubsub::AckToken> tokens, Done) override { released += tokens.size(); }

  size_t acked = 0, released = 0;
  pubsub::AckToken last;
};

// A Seek waits for acks that are on their way: one that is sent later could settle what it brings.
TEST(AckStage, AcksUpToTheFenceAndGivesBackAfterwards) {
  CountingReceiver receiver;
  MetricsRegistry registry;
  GroupMetrics metrics(registry, "feed");
  AckStage stage(receiver, nullptr, metrics, Millis(5'000));
  const SteadyTime now = BootTime();
  stage.Ack(std::vector<pubsub::AckToken>(2), now);
  EXPECT_EQ(receiver.acked, 2u);
  stage.Ack(std::vector<pubsub::AckToken>(3), now - Millis(5'001));
  EXPECT_EQ(receiver.acked, 2u);
  EXPECT_EQ(receiver.released, 3u);
}

TEST(AckStage, BringsTheTokensOfTheSecondStreamBackToIt) {
  CountingReceiver receiver, aside;
  MetricsRegistry registry;
  GroupMetrics metrics(registry, "feed");
  AckStage stage(receiver, &aside, metrics, Millis(5'000));
  const pubsub::AckToken plain("a"), marked = MarkAside(pubsub::AckToken("b"));
  stage.Ack({plain, marked, plain}, BootTime());
  EXPECT_EQ(receiver.acked, 2u);
  EXPECT_EQ(aside.acked, 1u);
  EXPECT_EQ(aside.last, pubsub::AckToken("b")) << "as the server gave it";
  stage.GiveBack({marked});
  EXPECT_EQ(receiver.released, 0u);
  EXPECT_EQ(aside.released, 1u);
}

}  // namespace
}  // namespace lockstep::runner
