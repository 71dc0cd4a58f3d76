#include "runner/lane/ack_stage.h"

#include <gtest/gtest.h>

namespace lockstep::runner {
namespace {

class CountingReceiver : public pubsub::Receiver {
 public:
  absl::Status Start() override { return absl::OkStatus(); }
  void Stop() override {}
  void Acknowledge(std::vector<pubsub::AckToken> tokens, Done) override { acked += tokens.size(); }
  void Release(std::vector<pubsub::AckToken> tokens, Done) override { released += tokens.size(); }

  size_t acked = 0, released = 0;
};

// A Seek waits for acks that are on their way: one that is sent later could settle what it brings.
TEST(AckStage, AcksUpToTheFenceAndGivesBackAfterwards) {
  CountingReceiver receiver;
  MetricsRegistry registry;
  GroupMetrics metrics(registry, "feed");
  AckStage stage(receiver, metrics, Millis(5'000));
  const SteadyTime now = BootTime();
  stage.Ack(std::vector<pubsub::AckToken>(2), now);
  EXPECT_EQ(receiver.acked, 2u);
  stage.Ack(std::vector<pubsub::AckToken>(3), now - Millis(5'001));
  EXPECT_EQ(receiver.acked, 2u);
  EXPECT_EQ(receiver.released, 3u);
}

}  // namespace
}  // namespace lockstep::runner
