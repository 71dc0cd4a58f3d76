#include "publisher/relay/topic_pauses.h"

#include <algorithm>

namespace lockstep::publisher {

bool TopicPauses::HasRoomFor(const std::string& topic, SteadyTime now) {
  if (topics_.size() < kMost || topics_.contains(topic)) return true;
  std::erase_if(topics_, [&](const auto& entry) { return entry.second.until <= now; });
  return topics_.size() < kMost;
}

std::optional<Millis> TopicPauses::Pause(const std::string& topic, SteadyTime now) {
  Topic& state = topics_[topic];
  if (state.failures > 0 && now < state.until) return std::nullopt;
  const Millis pause = policy_.Delay(++state.failures, random_());
  state.until = now + pause;
  return pause;
}

void TopicPauses::Reached(const std::string& topic) {
  if (!topics_.empty()) topics_.erase(topic);
}

std::vector<std::string> TopicPauses::Paused(SteadyTime now) const {
  std::vector<std::string> paused;
  for (const auto& [topic, state] : topics_) {
    if (now < state.until) paused.push_back(topic);
  }
  return paused;
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
