#include "publisher/relay/topic_pauses.h"

#include <algorithm>

namespace lockstep::publisher {

bool TopicPauses::HasRoomFor(const std::string& topic, SteadyTime now) {
  if (topics_.size() < kMost || topics_.contains(topic)) return true;
  std::erase_if(topics_, [&](const auto& entry) { return entry.second.until <= now; });
  return topics_.size() < kMost;
}

std::optional<Millis> TopicPauses::Pause(const std::string& topic, SteadyTime now,
                                         std::optional<Millis> asked) {
  Topic& state = topics_[topic];
  if (asked.has_value()) asked = std::clamp(*asked, std::min(policy_.base, kLongest), kLongest);
  if (state.failures > 0 && now < state.until) {
    if (asked.has_value()) {
      state.asked_at = now;
      state.until = std::max(state.until, now + *asked);
    }
    return std::nullopt;
  }
  const Millis wait = policy_.Delay(++state.failures, random_());
  const Millis pause = asked.value_or(wait);
  state.asked_at = asked.has_value() ? now : SteadyTime();
  state.until = now + pause;
  return pause;
}

void TopicPauses::Reached(const std::string& topic, SteadyTime sent_at) {
  if (topics_.empty()) return;
  const auto found = topics_.find(topic);
  if (found != topics_.end() && sent_at >= found->second.asked_at) topics_.erase(found);
}

std::vector<std::string> TopicPauses::Paused(SteadyTime now) const {
  std::vector<std::string> paused;
  for (const auto& [topic, state] : topics_) {
    if (now < state.until) paused.push_back(topic);
  }
  return paused;
}

std::vector<std::string> TopicPauses::ToPassOver(SteadyTime now, const InHand& in_hand) const {
  std::vector<std::string> topics;
  for (const auto& [topic, state] : topics_) {
    if (now < state.until || in_hand(topic)) topics.push_back(topic);
  }
  return topics;
}

std::optional<Millis> TopicPauses::NextEnd(SteadyTime now) const {
  std::optional<Millis> next;
  for (const auto& [topic, state] : topics_) {
    if (now >= state.until) continue;
    const auto left = std::chrono::ceil<Millis>(state.until - now);
    next = next.has_value() ? std::min(*next, left) : left;
  }
  return next;
}

}  // namespace lockstep::publisher
