#pragma once

#include <set>
#include <string>

#include "publisher/dispatch/route.h"

namespace lockstep::publisher {

// Under which name a topic is counted and shown: its own, if the configuration has it or if it is
// among the first hundred others. The rest share one. Writers name topics, and what is kept by
// topic is kept until the process ends. Owned by the relay's thread.
class TopicLabels {
 public:
  static constexpr size_t kMostOthers = 100;
  static constexpr char kRest[] = "(other)";  // no logical topic has parentheses

  explicit TopicLabels(const Topics& configured = {}) {
    for (const auto& [logical, target] : configured) names_.insert(logical);
    most_ = names_.size() + kMostOthers;
  }

  std::string Of(const std::string& topic) {
    if (names_.contains(topic)) return topic;
    if (names_.size() >= most_) return kRest;
    names_.insert(topic);
    return topic;
  }

 private:
  std::set<std::string> names_;
  size_t most_ = kMostOthers;
};

}  // namespace lockstep::publisher
