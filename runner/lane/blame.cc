// The part of FailurePolicy that finds the event at fault: smaller and smaller parts, down to one.
#include <algorithm>
#include <tuple>
#include <utility>

#include "platform/log/masking.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "runner/lane/failure_policy.h"
#include "runner/lane/shown_error.h"

namespace lockstep::runner {

absl::Status FailurePolicy::Blame(Part& part, const absl::Status& failed, int transactions) {
  const bool refused = postgres::Classify(failed) == postgres::ErrorClass::kData;
  part.faults_in_a_row = part.faults_against = 0;
  if (part.parked()) {
    const bool marked = part.FirstIsMarkedDead();
    if (part.loaded.events == 0 && !refused) return absl::OkStatus();  // somebody holds the key
    if (part.loaded.events == 0 || (marked && part.loaded.events == 1)) {
      return FailedPrecondition("parked events of {} can't be {}: {}", UnlessMasked(part.key),
                                marked ? "made dead letters" : "read", ShownError(failed));
    }
  }
  // A refusal names its cause; only faults that should have passed make a part suspect.
  part.suspected = part.suspected || !refused;
  for (Inbound* item : part.items) item->attempts += transactions;
  if (Narrow(part)) return absl::OkStatus();
  if (!part.parked()) return BlameMessage(part, failed);
  BlameParked(part, failed, transactions);
  return absl::OkStatus();
}

bool FailurePolicy::Narrow(Part& part) {
  if (part.items.size() > 1) {
    Split(part);
    return true;
  }
  if (!part.parked()) return LeaveParked(part);
  if (part.loaded.events <= 1) return false;
  part.limits.max_events = part.loaded.events / 2;
  return true;
}

// What waits behind the messages is left to transactions of its own: a fault there is not theirs.
bool FailurePolicy::LeaveParked(Part& part) {
  if (part.parked() || part.limits.max_events == 0) return false;
  part.limits.max_events = 0;
  return true;
}

void FailurePolicy::Split(const Part& part) {
  // Sorted, so that the events of an aggregate stay in order over the two transactions.
  std::vector<Inbound*> sorted = part.items;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Inbound* a, const Inbound* b) {
    return std::tie(a->aggregate_key, a->event.version) <
           std::tie(b->aggregate_key, b->event.version);
  });
  const auto middle = sorted.begin() + static_cast<int64_t>(sorted.size() / 2);
  const auto half = [&](auto begin, auto end) {
    return Part{.items = {begin, end}, .limits = {.max_events = 0}, .suspected = part.suspected};
  };
  Part first = half(sorted.begin(), middle);
  Part second = half(middle, sorted.end());
  parts_.back() = std::move(second);
  parts_.push_back(std::move(first));
}

// Alone, and without what waits behind it.
absl::Status FailurePolicy::BlameMessage(Part& part, const absl::Status& failed) {
  Inbound& item = *part.items.front();
  if (item.poison) {
    return FailedPrecondition("a dead letter can't be written: {}", ShownError(failed));
  }
  if (item.attempts < options_.max_attempts) return absl::OkStatus();
  item.poison = PoisonOf(failed);
  part.suspected = false;
  return absl::OkStatus();
}

void FailurePolicy::BlameParked(Part& part, const absl::Status& failed, int transactions) {
  // Others may release the same key: whoever was first before may be gone.
  part.attempts = transactions + (part.loaded.first == part.alone ? part.attempts : 0);
  part.alone = part.loaded.first;
  if (part.attempts < options_.max_attempts) return;
  part.limits.marked_dead.push_back({part.alone, PoisonOf(failed), part.attempts});
}

bool FailurePolicy::Part::FirstIsMarkedDead() const {
  return std::any_of(limits.marked_dead.begin(), limits.marked_dead.end(),
                     [&](const MarkedDead& one) { return one.event == loaded.first; });
}

}  // namespace lockstep::runner
