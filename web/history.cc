#include "web/history.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::web {
namespace {

using nlohmann::json;

// One number of a document's part, under `<part>/<name>/<number>`.
void Take(std::map<std::string, double>& values, const std::string& prefix, const json& part,
          const char* number) {
  const auto found = part.find(number);
  if (found != part.end() && found->is_number()) values[prefix + number] = found->get<double>();
}

// Two decimals: a page needs no more, and ten minutes of them stay small.
json Rounded(const std::optional<double>& value) {
  if (!value.has_value()) return nullptr;
  return std::round(*value * 100) / 100;
}

std::string GroupPrefix(const json& group) { return "g/" + group.value("name", "") + "/"; }
std::string OutboxPrefix(const json& outbox) { return "o/" + outbox.value("table", "") + "/"; }

const json& ArrayOf(const json& document, const char* name) {
  static const json kNone = json::array();
  const auto found = document.find(name);
  return found == document.end() || !found->is_array() ? kNone : *found;
}

}  // namespace

History::History() : History(Options{}) {}
History::History(Options options) : options_(options) {}

void History::Add(WallTime at, const json& document) {
  Sample sample{.at_ms = std::chrono::duration_cast<Millis>(at.time_since_epoch()).count(),
                .values = {}};
  for (const json& group : ArrayOf(document, "groups")) {
    Take(sample.values, GroupPrefix(group), group, "lag_ms");
    Take(sample.values, GroupPrefix(group), group.value("counters", json::object()), "applied");
  }
  for (const json& outbox : ArrayOf(document, "outboxes")) {
    Take(sample.values, OutboxPrefix(outbox), outbox, "pending");
    Take(sample.values, OutboxPrefix(outbox), outbox.value("counters", json::object()),
         "published");
  }
  // A clock that was set back starts the history anew: points must not run backwards.
  if (!samples_.empty() && sample.at_ms < samples_.back().at_ms) samples_.clear();
  if (samples_.size() >= 2 &&
      samples_.back().at_ms - samples_[samples_.size() - 2].at_ms < options_.step.count()) {
    samples_.pop_back();
  }
  samples_.push_back(std::move(sample));
  while (samples_.back().at_ms - samples_.front().at_ms > options_.span.count()) {
    samples_.pop_front();
  }
}

std::optional<double> History::ValueAt(size_t sample, const std::string& name) const {
  const auto found = samples_[sample].values.find(name);
  if (found == samples_[sample].values.end()) return std::nullopt;
  return found->second;
}

std::optional<double> History::Slope(size_t sample, const std::string& name) const {
  const std::optional<double> newest = ValueAt(sample, name);
  if (!newest.has_value()) return std::nullopt;
  const int64_t since = samples_[sample].at_ms - options_.rate_window.count();
  std::optional<double> oldest;
  int64_t elapsed = 0;
  for (size_t i = sample; i-- > 0;) {
    if (samples_[i].at_ms < since && oldest.has_value()) break;
    const std::optional<double> value = ValueAt(i, name);
    if (!value.has_value()) break;
    oldest = value;
    elapsed = samples_[sample].at_ms - samples_[i].at_ms;
    if (samples_[i].at_ms <= since) break;
  }
  if (!oldest.has_value() || elapsed <= 0) return std::nullopt;
  return (*newest - *oldest) * 1000.0 / static_cast<double>(elapsed);
}

std::optional<double> History::TimeToZero(const std::string& name) const {
  if (samples_.empty()) return std::nullopt;
  const std::optional<double> now = ValueAt(samples_.size() - 1, name);
  if (!now.has_value()) return std::nullopt;
  if (*now <= 0) return 0;
  const std::optional<double> slope = Slope(samples_.size() - 1, name);
  if (!slope.has_value() || *slope >= 0) return std::nullopt;
  return *now / -*slope;
}

json History::Values(const std::string& name) const {
  json values = json::array();
  for (size_t i = 0; i < samples_.size(); ++i) values.push_back(Rounded(ValueAt(i, name)));
  return values;
}

json History::Rates(const std::string& name) const {
  json values = json::array();
  for (size_t i = 0; i < samples_.size(); ++i) {
    std::optional<double> slope = Slope(i, name);
    if (slope.has_value()) slope = std::max(0.0, *slope);  // a counter that began anew
    values.push_back(Rounded(slope));
  }
  return values;
}

void History::Decorate(json& document) const {
  json history = {{"span_ms", options_.span.count()}, {"at", json::array()}};
  for (const Sample& sample : samples_) history["at"].push_back(sample.at_ms);
  const auto newest = [](const json& values) {
    return values.empty() ? json(nullptr) : values.back();
  };
  if (document.contains("groups")) {
    for (json& group : document["groups"]) {
      const std::string prefix = GroupPrefix(group);
      json rates = Rates(prefix + "applied");
      group["rate"] = newest(rates);
      group["eta_seconds"] = Rounded(TimeToZero(prefix + "lag_ms"));
      history["groups"][group.value("name", "")] = {{"lag_ms", Values(prefix + "lag_ms")},
                                                    {"rate", std::move(rates)}};
    }
  }
  if (document.contains("outboxes")) {
    for (json& outbox : document["outboxes"]) {
      const std::string prefix = OutboxPrefix(outbox);
      json rates = Rates(prefix + "published");
      outbox["rate"] = newest(rates);
      outbox["eta_seconds"] = Rounded(TimeToZero(prefix + "pending"));
      history["outboxes"][outbox.value("table", "")] = {{"pending", Values(prefix + "pending")},
                                                        {"rate", std::move(rates)}};
    }
  }
  document["history"] = std::move(history);
}

}  // namespace lockstep::web
