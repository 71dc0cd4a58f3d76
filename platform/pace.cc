#include "platform/pace.h"

#include <algorithm>

namespace lockstep {

constexpr double kPause = 3;  // seconds; counts are reported each second: less is no pause

void Pace::Note(double seconds, double value) {
  const bool moved = !looks_.empty() && value != looks_.back().value;
  const bool after_standstill = moved && seconds - moved_ >= options_.shortest;
  if (looks_.empty() || (options_.in_steps && (looks_.back().value == 0 || after_standstill))) {
    looks_.assign(1, {seconds, value});
    began_ = moved_ = seconds;
    return;
  }
  if (moved) moved_ = seconds;
  if (options_.in_steps && !moved && seconds - looks_.back().seconds < kPause) return;
  looks_.push_back({seconds, value});
  const double window = std::clamp((seconds - began_) / 2, options_.shortest, options_.longest);
  while (looks_.size() > 2 && looks_[1].seconds <= seconds - window) looks_.pop_front();
}

std::optional<double> Pace::per_second() const {
  if (looks_.size() < 2) return std::nullopt;
  const double time = looks_.back().seconds - looks_.front().seconds;
  if (time <= 0) return std::nullopt;
  if (options_.in_steps && looks_.back().seconds - moved_ >= options_.shortest) return 0;
  return (looks_.back().value - looks_.front().value) / time;
}

std::optional<double> Pace::SecondsFor(double way) const {
  const double rate = per_second().value_or(0);
  if (rate == 0 || way / rate < 0) return std::nullopt;
  return way / rate;
}

}  // namespace lockstep
