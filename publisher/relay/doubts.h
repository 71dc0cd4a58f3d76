#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "platform/clock.h"
#include "publisher/outbox/outbox_row.h"

namespace lockstep::publisher {

// Rows that failed with an answer that may be about them or about everybody: billing that is off, a
// storage policy, a schema that is gone or a bad release of the bus refuses every row in the same
// words. Such a row is at fault only if it fails alone, and others of its topic that were sent
// since it was first in doubt have passed. Owned by the relay's thread; what it forgets costs a row
// one more try.
class Doubts {
 public:
  // It was in a request that failed as a whole.
  void Suspect(const OutboxRow& row, SteadyTime now) { Find(row, now); }

  struct Verdict {
    bool at_fault = false;
    int times = 0;  // that it failed alone and nobody knows why
  };
  // It failed alone.
  Verdict Failed(const OutboxRow& row, SteadyTime now) {
    Doubt& doubt = Find(row, now);
    const bool at_fault = doubt.since < topics_[row.topic].passed;
    if (at_fault) {
      doubt = {.since = now};
    } else {
      ++doubt.times;
    }
    return {at_fault, doubt.times};
  }
  void Passed(const OutboxRow& row, SteadyTime sent_at) {
    if (topics_.empty()) return;  // as a rule
    const auto found = topics_.find(row.topic);
    if (found == topics_.end()) return;
    found->second.passed = std::max(found->second.passed, sent_at);
    Forget(row);
  }
  // It is dead, or was published.
  void Forget(const OutboxRow& row) {
    const auto found = topics_.find(row.topic);
    if (found == topics_.end()) return;
    found->second.rows.erase(row.sequence);
    if (found->second.rows.empty()) topics_.erase(found);
  }
  // Whether several rows have failed alone since one passed: then it is the topic that fails.
  bool Widespread(const std::string& name) const {
    const auto found = topics_.find(name);
    if (found == topics_.end()) return false;
    const Topic& topic = found->second;
    return std::ranges::count_if(topic.rows, [&](const auto& row) {
             return row.second.times > 0 && row.second.since >= topic.passed;
           }) > 1;
  }

 private:
  // Some are never heard of again: another publisher has them.
  static constexpr size_t kMost = 100'000;

  struct Doubt {
    SteadyTime since;
    int times = 0;
  };
  struct Topic {
    SteadyTime passed;              // when the last row that passed was sent
    std::map<int64_t, Doubt> rows;  // by sequence
  };

  Doubt& Find(const OutboxRow& row, SteadyTime now) {
    Topic& topic = topics_[row.topic];
    if (topic.rows.size() >= kMost && !topic.rows.contains(row.sequence)) {
      topic.rows.erase(topic.rows.begin());
    }
    return topic.rows.try_emplace(row.sequence, Doubt{.since = now}).first->second;
  }

  std::map<std::string, Topic> topics_;
};

}  // namespace lockstep::publisher
