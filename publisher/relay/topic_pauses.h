#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/clock.h"
#include "platform/retry_policy.h"

namespace lockstep::publisher {

// Topics that are out of reach back off, each alone. Owned by the relay's thread.
class TopicPauses {
 public:
  // Every claim names those that are paused, and whoever enqueues may name topics (any_topic).
  static constexpr size_t kMost = 1000;

  // `policy`: as it is when a pause begins.
  TopicPauses(const RetryPolicy& policy, Backoff::Random random)
      : policy_(policy), random_(std::move(random)) {}

  // Whether the topic can be paused, now that those whose pause is over are forgotten if need be.
  bool HasRoomFor(const std::string& topic, SteadyTime now);
  // The pause, or nothing if the topic is paused already. REQUIRES: HasRoomFor.
  std::optional<Millis> Pause(const std::string& topic, SteadyTime now);
  void Reached(const std::string& topic);

  std::vector<std::string> Paused(SteadyTime now) const;

  // A claim passed over these. Later: whether other topics are paused now, because a pause has
  // begun or ended, by its time or by an answer, and rows may wait.
  void PassedOver(std::vector<std::string> topics) { passed_over_ = std::move(topics); }
  bool Changed(SteadyTime now) const { return Paused(now) != passed_over_; }

  // Until the first of them may be tried again.
  std::optional<Millis> NextEnd(SteadyTime now) const;

 private:
  struct Topic {
    int failures = 0;
    SteadyTime until;
  };

  const RetryPolicy& policy_;
  Backoff::Random random_;
  std::map<std::string, Topic> topics_;
  std::vector<std::string> passed_over_;
};

}  // namespace lockstep::publisher
