#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "platform/boot_time.h"
#include "pubsub/receiver.h"
#include "runner/status/group_metrics.h"

namespace lockstep::runner {

// Tokens of a group's second stream carry a mark in front, which no server gives, so that they find
// their way back to it.
inline constexpr char kAsideMark = '\x1f';
inline bool IsAside(const pubsub::AckToken& token) { return token.value().starts_with(kAsideMark); }
inline pubsub::AckToken MarkAside(const pubsub::AckToken& token) {
  return pubsub::AckToken(kAsideMark + token.value());
}

// The last stage: acks what has committed, gives back what will not be applied, and counts the
// answers. Called on the lanes' threads; the answers come on transport threads.
//
// REQUIRES: metrics outlive the receiver.
class AckStage {
 public:
  // `aside`: where marked tokens belong; null when the group has no second stream.
  AckStage(pubsub::Receiver& receiver, pubsub::Receiver* aside, GroupMetrics& metrics, Millis fence)
      : receiver_(receiver), aside_(aside), metrics_(metrics), fence_(fence) {}

  // REQUIRES: the transaction of these messages has committed, and began to at `commit_began`, by
  // BootTime: a Seek elsewhere does not wait for a machine that sleeps. Past
  // the fence they are given back instead: an ack now could ack what a Seek has brought back.
  void Ack(std::vector<pubsub::AckToken> tokens, SteadyTime commit_began) {
    if (tokens.empty()) return;
    if (BootTime() - commit_began > fence_) return GiveBack(std::move(tokens));
    // The answer may come after this object is gone.
    const auto count = [metrics = &metrics_](const auto& answers) {
      // A failed ack needs nothing: the message comes again and the inbox knows it.
      const auto ok = std::count(answers.begin(), answers.end(), absl::OkStatus());
      metrics->Count({.acks = ok, .ack_failures = static_cast<int64_t>(answers.size()) - ok});
    };
    if (auto aside = TakeAside(tokens); !aside.empty()) {
      aside_->Acknowledge(std::move(aside), count);
    }
    if (!tokens.empty()) receiver_.Acknowledge(std::move(tokens), count);
  }

  void GiveBack(std::vector<pubsub::AckToken> tokens) {
    if (tokens.empty()) return;
    metrics_.Count({.nacks = static_cast<int64_t>(tokens.size())});
    if (auto aside = TakeAside(tokens); !aside.empty()) {
      aside_->Release(std::move(aside), [](const auto&) {});
    }
    if (!tokens.empty()) receiver_.Release(std::move(tokens), [](const auto&) {});
  }

 private:
  // Those of the second stream, as it knows them.
  std::vector<pubsub::AckToken> TakeAside(std::vector<pubsub::AckToken>& tokens) const {
    std::vector<pubsub::AckToken> aside;
    if (aside_ == nullptr) return aside;
    std::erase_if(tokens, [&](const pubsub::AckToken& token) {
      if (!IsAside(token)) return false;
      aside.emplace_back(token.value().substr(1));
      return true;
    });
    return aside;
  }

  pubsub::Receiver& receiver_;
  pubsub::Receiver* const aside_;
  GroupMetrics& metrics_;
  const Millis fence_;
};

}  // namespace lockstep::runner
