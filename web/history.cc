#include "web/history.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::web {

using nlohmann::json;

constexpr Millis kSpan{3'600'000};  // how far back
constexpr Millis kStep{2'000};      // between two points; closer ones replace the newest
constexpr Millis kFine{300'000};    // for so long; of what is older,
constexpr Millis kCoarse{15'000};   // one point for each of these

json Rounded(const std::optional<double>& value) {
  if (!value.has_value()) return nullptr;
  return std::round(*value * 100) / 100;
}

void History::Add(WallTime at, const std::vector<Part>& parts) {
  Sample sample{.at_ms = std::chrono::duration_cast<Millis>(at.time_since_epoch()).count(),
                .points = {}};
  if (!samples_.empty() && sample.at_ms < samples_.back().at_ms) {  // the clock was set back
    samples_.clear();
    paces_.clear();
    coarse_ = 0;
  }
  const double seconds = static_cast<double>(sample.at_ms) / 1000;
  for (const Part& part : parts) {
    Paces& paces = paces_[part.name];
    if (part.done) paces.done.Note(seconds, *part.done);
    if (part.left) paces.left.Note(seconds, *part.left);
    paces.newest = part;
    sample.points[part.name] = {part.left, Of(part.name).rate};
  }
  if (samples_.size() >= coarse_ + 2 &&
      samples_.back().at_ms - samples_[samples_.size() - 2].at_ms < kStep.count()) {
    samples_.pop_back();
  }
  samples_.push_back(std::move(sample));
  Thin();
}

// What leaves the last minutes joins the coarse point before it, if that is of the same time.
void History::Thin() {
  const int64_t now = samples_.back().at_ms;
  while (coarse_ + 1 < samples_.size() && now - samples_[coarse_].at_ms > kFine.count()) {
    const Sample& old = samples_[coarse_];
    const bool joins =
        coarse_ > 0 && samples_[coarse_ - 1].at_ms / kCoarse.count() == old.at_ms / kCoarse.count();
    if (!joins) {
      ++coarse_;
      continue;
    }
    Sample& kept = samples_[coarse_ - 1];
    for (const auto& [name, point] : old.points) {
      Point& highest = kept.points[name];
      if (point.left && (!highest.left || *point.left >= *highest.left)) {
        kept.at_ms = old.at_ms;  // where the peak of the last part was
        highest.left = point.left;
      }
      if (point.rate) highest.rate = std::max(highest.rate.value_or(0), *point.rate);
    }
    samples_.erase(samples_.begin() + static_cast<std::ptrdiff_t>(coarse_));
  }
  while (now - samples_.front().at_ms > kSpan.count()) {
    samples_.pop_front();
    if (coarse_ > 0) --coarse_;
  }
}

History::Outlook History::Of(const std::string& name) const {
  const auto found = paces_.find(name);
  if (found == paces_.end()) return {};
  const Paces& paces = found->second;
  Outlook outlook;
  if (paces.newest.done) outlook.rate = paces.done.per_second();
  if (outlook.rate) outlook.rate = std::max(0.0, *outlook.rate);  // a counter that began anew
  if (const auto left = paces.newest.left) {
    outlook.eta_seconds = *left == 0 ? 0 : paces.left.SecondsFor(-*left);
  }
  return outlook;
}

json History::ToJson(const char* list, const char* left) const {
  json history = {{"span_ms", kSpan.count()}, {"at", json::array()}};
  for (const Sample& sample : samples_) history["at"].push_back(sample.at_ms);
  for (const auto& [name, unused] : paces_) {
    json& part = history[list][name] = {{left, json::array()}, {"rate", json::array()}};
    for (const Sample& sample : samples_) {
      const auto point = sample.points.find(name);
      const Point known = point == sample.points.end() ? Point() : point->second;
      part[left].push_back(Rounded(known.left));
      part["rate"].push_back(Rounded(known.rate));
    }
  }
  return history;
}

}  // namespace lockstep::web
