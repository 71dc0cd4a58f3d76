#pragma once

#include <functional>
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
  // The pause, or nothing if the topic is paused already. `asked`: how long the other side wants to
  // be left alone, which counts in place of the policy's wait, but for less than its shortest or
  // more than kLongest; it can make a pause longer that has begun. REQUIRES: HasRoomFor.
  static constexpr Millis kLongest{3'600'000};
  std::optional<Millis> Pause(const std::string& topic, SteadyTime now,
                              std::optional<Millis> asked = std::nullopt);
  // Something that was sent at that time was taken: the topic can be reached. A pause that the
  // other side asked for is not ended by what was sent before it.
  void Reached(const std::string& topic, SteadyTime sent_at);

  std::vector<std::string> Paused(SteadyTime now) const;

  // Those that a claim passes over: the paused, and those whose pause is over while some of their
  // rows are in hand and try whether they can be reached. A topic that hangs would fill the hands
  // with its rows each time, and all others would wait for its timeout. `in_hand`: of a topic.
  using InHand = std::function<bool(const std::string& topic)>;
  std::vector<std::string> ToPassOver(SteadyTime now, const InHand& in_hand) const;

  // A claim passed over these. Later: whether it would pass over others now, because a pause has
  // begun or ended, by its time or by an answer, and rows may wait.
  void PassedOver(std::vector<std::string> topics) { passed_over_ = std::move(topics); }
  bool Changed(SteadyTime now, const InHand& in_hand) const {
    return ToPassOver(now, in_hand) != passed_over_;
  }

  // Until the first of them may be tried again.
  std::optional<Millis> NextEnd(SteadyTime now) const;

 private:
  struct Topic {
    int failures = 0;
    SteadyTime asked_at, until;  // the first: never if nobody asked for it
  };

  const RetryPolicy& policy_;
  Backoff::Random random_;
  std::map<std::string, Topic> topics_;
  std::vector<std::string> passed_over_;
};

}  // namespace lockstep::publisher
