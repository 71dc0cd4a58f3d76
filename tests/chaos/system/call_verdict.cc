#include "tests/chaos/system/call_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tests/chaos/system/now.h"

namespace lockstep::chaos {
namespace {

// A yes is noted before its first byte is sent, and a signal takes its time.
constexpr int64_t kMoment = 1'000;

std::string Text(const CallNote& note) {
  return fmt::format("{} version {} (call {} by {})", note.key, note.version, note.number,
                     note.runner);
}

class Judge {
 public:
  Judge(const std::map<std::string, Due>& due, const std::vector<Blow>& blows, int in_hand)
      : due_(due), in_hand_(in_hand) {
    for (const Blow& blow : blows) blows_.push_back({blow, 0});
    std::ranges::stable_sort(blows_, {}, [](const Counted& one) { return one.blow.begin; });
  }

  CallFindings Run(const std::vector<CallNote>& notes) {
    // Answers count from the moment at which they were noted, between two arrivals.
    std::vector<const CallNote*> answered;
    for (const CallNote& note : notes) answered.push_back(&note);
    std::ranges::stable_sort(answered, {}, &CallNote::answered_before);
    size_t next = 0;
    for (const CallNote& note : notes) {
      for (; next < answered.size() && answered[next]->answered_before <= note.number; ++next) {
        if (answered[next]->yes()) Accept(*answered[next]);
      }
      Arrive(note);
    }
    for (; next < answered.size(); ++next) {
      if (answered[next]->yes()) Accept(*answered[next]);
    }
    for (const auto& [id, one] : due_) {
      if (!one.refused && !accepted_.contains(id)) {
        found_.lost.push_back(fmt::format("{} version {}", one.key, one.version));
      }
    }
    return std::move(found_);
  }

 private:
  struct Counted {
    Blow blow;
    int explained;
  };
  struct Key {
    int64_t reached = 0;  // so many of its events have been answered yes
    const CallNote* last = nullptr;
    int64_t last_place = 0;
  };

  void Accept(const CallNote& note) {
    const auto due = due_.find(note.event_id);
    if (due == due_.end() || due->second.refused) {
      found_.uncalled.push_back("answered yes: " + Text(note));
      return;
    }
    accepted_[note.event_id] = &note;
    int64_t& reached = keys_[due->second.key].reached;
    reached = std::max(reached, due->second.place);
  }

  void Arrive(const CallNote& note) {
    ++found_.calls;
    ++found_.answers[note.answer.empty() ? "none" : note.answer];
    const auto due = due_.find(note.event_id);
    if (due == due_.end() || due->second.key != note.key || due->second.version != note.version ||
        note.idempotency_key != note.event_id || note.replay) {
      found_.uncalled.push_back(Text(note));
      return;
    }
    if (note.answer == "gone") return;
    Order(note, due->second.place);
    if (const auto before = accepted_.find(note.event_id); before != accepted_.end()) {
      Repeat(note, *before->second);
    }
  }

  void Order(const CallNote& note, int64_t place) {
    Key& key = keys_[note.key];
    const bool skips =
        key.last != nullptr && key.last->runner == note.runner && place > key.last_place + 1;
    if (place > key.reached + 1) {
      found_.disordered.push_back(Text(note) + " before its predecessors");
    } else if (skips) {
      found_.disordered.push_back(Text(note) + " right after " + Text(*key.last));
    }
    key.last = &note;
    key.last_place = place;
  }

  void Repeat(const CallNote& note, const CallNote& before) {
    ++found_.repeated;
    if (note.known == '?') ++found_.untold;
    if (note.known == 'y') found_.known.push_back(Text(note) + " after " + Text(before));
    // The latest that has something left to explain.
    for (auto one = blows_.rbegin(); one != blows_.rend(); ++one) {
      if (one->explained >= in_hand_ || !Explains(one->blow, note, before)) continue;
      if (one->blow.to != Blow::To::kFailover) ++one->explained;
      return;
    }
    found_.unexplained.push_back(Text(note) + " after " + Text(before));
  }

  static bool Explains(const Blow& blow, const CallNote& note, const CallNote& before) {
    const int64_t begin = Millisecond(blow.begin), end = Millisecond(blow.end) + kMoment;
    const bool between = begin <= note.arrived && end >= before.answered;
    const bool another = note.runner != before.runner;
    switch (blow.to) {
      case Blow::To::kRunner:
        return between && (before.runner == 0 || blow.runner == before.runner);
      case Blow::To::kEpoch:
      case Blow::To::kFailover:
        return between;
      case Blow::To::kAnswers:
        return between && (another || begin <= before.answered + kMoment);
      case Blow::To::kConsumer:
      case Blow::To::kDatabase:
        return between && another;
    }
    return false;
  }

  const std::map<std::string, Due>& due_;
  const int in_hand_;
  std::vector<Counted> blows_;
  std::map<std::string, const CallNote*> accepted_;  // the last yes of each event
  std::map<std::string, Key> keys_;
  CallFindings found_;
};

}  // namespace

CallFindings JudgeCalls(const std::vector<CallNote>& notes, const std::map<std::string, Due>& due,
                        const std::vector<Blow>& blows, int in_hand) {
  return Judge(due, blows, in_hand).Run(notes);
}

}  // namespace lockstep::chaos
