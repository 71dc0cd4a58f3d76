#pragma once

#include <functional>
#include <vector>

#include "pubsub/receiver.h"
#include "runner/status/group_metrics.h"

namespace lockstep::runner {

// The last stage: acks what has committed, gives back what will not be applied, and counts the
// answers. Called on the lanes' threads; the answers come on transport threads.
//
// REQUIRES: metrics outlive the receiver.
class AckStage {
 public:
  AckStage(pubsub::Receiver& receiver, GroupMetrics& metrics, Millis fence)
      : receiver_(receiver), metrics_(metrics), fence_(fence) {}

  // REQUIRES: the transaction of these messages has committed, and began to at `commit_began`. Past
  // the fence they are given back instead: an ack now could settle what a Seek has brought back.
  void Ack(std::vector<pubsub::AckToken> tokens, SteadyTime commit_began);
  void GiveBack(std::vector<pubsub::AckToken> tokens);

 private:
  pubsub::Receiver& receiver_;
  GroupMetrics& metrics_;
  const Millis fence_;
};

}  // namespace lockstep::runner
