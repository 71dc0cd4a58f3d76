#include "pubsub/google_cloud/hands.h"

#include <algorithm>
#include <utility>

namespace lockstep::pubsub::google_cloud {

Hands::Hands(int64_t max_messages, int64_t max_bytes)
    : max_messages_(max_messages), max_bytes_(max_bytes) {}

bool Hands::HasRoomFor(int64_t bytes) const {
  if (held_.empty()) return true;
  return static_cast<int64_t>(held_.size()) < max_messages_ && bytes_ + bytes <= max_bytes_;
}

AckToken Hands::Put(Held held) {
  AckToken token(std::to_string(++last_token_));
  bytes_ += held.bytes;
  held_.emplace(token, std::move(held));
  return token;
}

std::optional<Held> Hands::Take(const AckToken& token) {
  const auto place = held_.find(token);
  if (place == held_.end()) return std::nullopt;
  std::optional<Held> held = std::move(place->second);
  held_.erase(place);
  bytes_ -= held->bytes;
  return held;
}

Hands::Overdue Hands::TakeOverdue(SteadyTime now, Millis most) {
  Overdue overdue;
  std::vector<AckToken> lapsed;
  for (auto& [token, held] : held_) {
    const auto age = now - held.since;
    if (age >= most) {
      lapsed.push_back(token);
    } else if (age >= most / 2 && !held.warned) {
      held.warned = true;
      ++overdue.warned;
    }
  }
  for (AckToken& token : lapsed) {
    Held held = *Take(token);
    overdue.lapsed.emplace_back(std::move(token), std::move(held));
  }
  // The oldest first: the order in which they should return.
  std::sort(overdue.lapsed.begin(), overdue.lapsed.end(),
            [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
  return overdue;
}

std::vector<Held> Hands::TakeAll() {
  std::vector<Held> all;
  all.reserve(held_.size());
  for (auto& [token, held] : held_) all.push_back(std::move(held));
  held_.clear();
  bytes_ = 0;
  return all;
}

}  // namespace lockstep::pubsub::google_cloud
