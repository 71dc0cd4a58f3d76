#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "platform/retry_policy.h"

namespace lockstep::publisher {

// Topics that are out of reach back off, each alone. Owned by the relay's thread.
class TopicPauses {
 public:
  TopicPauses(RetryPolicy policy, Backoff::Random random)
      : policy_(policy), random_(std::move(random)) {}

  // For pauses that begin from now on.
  void SetPolicy(const RetryPolicy& policy) { policy_ = policy; }

  // The pause, or nothing if the topic is paused already.
  std::optional<Millis> Pause(const std::string& topic, SteadyTime now);
  void Reached(const std::string& topic);

  std::vector<std::string> Paused(SteadyTime now) const;
  // Until the first of them may be tried again.
  std::optional<Millis> NextEnd(SteadyTime now) const;

 private:
  struct Topic {
    int failures = 0;
    SteadyTime until;
  };

  RetryPolicy policy_;
  Backoff::Random random_;
  std::map<std::string, Topic> topics_;
};

}  // namespace lockstep::publisher
