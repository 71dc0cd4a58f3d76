#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "platform/boot_time.h"
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

  // REQUIRES: the transaction of these messages has committed, and began to at `commit_began`, by
  // BootTime: a Seek elsewhere does not wait for a machine that sleeps. Past
  // the fence they are given back instead: an ack now could ack what a Seek has brought back.
  void Ack(std::vector<pubsub::AckToken> tokens, SteadyTime commit_began) {
    if (tokens.empty()) return;
    if (BootTime() - commit_began > fence_) return GiveBack(std::move(tokens));
    // The answer may come after this object is gone.
    receiver_.Acknowledge(std::move(tokens), [metrics = &metrics_](const auto& answers) {
      // A failed ack needs nothing: the message comes again and the inbox knows it.
      const auto ok = std::count(answers.begin(), answers.end(), absl::OkStatus());
      metrics->Count({.acks = ok, .ack_failures = static_cast<int64_t>(answers.size()) - ok});
    });
  }

  void GiveBack(std::vector<pubsub::AckToken> tokens) {
    if (tokens.empty()) return;
    metrics_.Count({.nacks = static_cast<int64_t>(tokens.size())});
    receiver_.Release(std::move(tokens), [](const auto&) {});
  }

 private:
  pubsub::Receiver& receiver_;
  GroupMetrics& metrics_;
  const Millis fence_;
};

}  // namespace lockstep::runner
