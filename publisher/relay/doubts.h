#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "publisher/outbox/outbox_row.h"

namespace lockstep::publisher {

// Rows that failed alone with an answer that may be about them or about everybody: billing that is
// off, a storage policy or a bad release of the bus refuses every row in the same words. Such a row
// is at fault only if others of its topic have passed since it last failed. Owned by the relay's
// thread; what it forgets costs a row one more try.
class Doubts {
 public:
  struct Verdict {
    bool at_fault = false;
    int times = 0;  // that it failed and nobody knows why
  };
  Verdict Failed(const OutboxRow& row) {
    Topic& topic = topics_[row.topic];
    if (topic.failed.size() >= kMost && !topic.failed.contains(row.sequence)) {
      topic.failed.erase(topic.failed.begin());
    }
    const auto [doubt, first] = topic.failed.try_emplace(row.sequence);
    const bool at_fault = !first && doubt->second.passed < topic.passed;
    doubt->second = {topic.passed, at_fault ? 0 : doubt->second.times + 1};
    return {at_fault, doubt->second.times};
  }
  void Passed(const OutboxRow& row) {
    if (topics_.empty()) return;  // as a rule
    const auto found = topics_.find(row.topic);
    if (found == topics_.end()) return;
    ++found->second.passed;
    found->second.failed.erase(row.sequence);
    if (found->second.failed.empty()) topics_.erase(found);
  }
  // It is dead, or another's.
  void Forget(const OutboxRow& row) {
    const auto found = topics_.find(row.topic);
    if (found != topics_.end()) found->second.failed.erase(row.sequence);
  }
  // Whether several rows have failed since one passed: then it is the topic that fails.
  bool Widespread(const std::string& name) const {
    const auto found = topics_.find(name);
    if (found == topics_.end()) return false;
    const Topic& topic = found->second;
    return std::ranges::count_if(topic.failed, [&](const auto& row) {
             return row.second.passed == topic.passed;
           }) > 1;
  }

 private:
  // Some are never heard of again: another publisher has them.
  static constexpr size_t kMost = 100'000;

  struct Doubt {
    int64_t passed = 0;  // of the topic's, when it last failed
    int times = 0;
  };
  struct Topic {
    int64_t passed = 0;               // rows, since the first failure
    std::map<int64_t, Doubt> failed;  // by sequence
  };
  std::map<std::string, Topic> topics_;
};

}  // namespace lockstep::publisher
