#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

#include "state/events/key_states.h"

namespace lockstep::runner {

using state::KeyRow;

// What becomes of an event. PlanKey decides whether it waits, is applied or dies; the inbox finds
// the duplicates; the projector's answer tells the superseded and the ignored from the applied.
enum class Fate {
  kWaitsForPredecessor,  // parked: a version before it is missing
  kWaitsForDeadLetter,   // parked: a version before it is dead
  kApplied,
  kSuperseded,  // every table had a newer version already
  kOvertaken,   // the same, of a snapshot, or of an event that a snapshot came before
  kIgnored,     // by declaration
  kDuplicate,   // came before
  kDead,
  kDeadAndBlocking,  // later versions wait for it
};
constexpr std::string_view Name(Fate fate) {
  constexpr std::string_view kNames[] = {"parked",     "parked",     "applied",
                                         "superseded", "superseded", "ignored",
                                         "duplicate",  "dead",       "dead"};
  static_assert(std::size(kNames) == static_cast<size_t>(Fate::kDeadAndBlocking) + 1);
  return kNames[static_cast<size_t>(fate)];
}

constexpr bool Waits(Fate fate) {
  return fate == Fate::kWaitsForPredecessor || fate == Fate::kWaitsForDeadLetter;
}
constexpr bool Dies(Fate fate) { return fate == Fate::kDead || fate == Fate::kDeadAndBlocking; }

// One event of the aggregate: what is known of it, and what PlanKey decides: kApplied stands for
// "to be applied".
struct PlanItem {
  int64_t version = 0;
  bool poison = false;
  bool parks_on_gap = false;
  bool snapshot = false;  // waits for nothing, and settles all before it; REQUIRES: not poison
  // Of what came before it nothing is left: it needs to know nothing of that. REQUIRES: not poison,
  // and that `items` has all of the aggregate that waits at lower versions.
  bool ends = false;
  Fate fate = Fate::kWaitsForPredecessor;
};

struct KeyRules {
  bool track_versions = false;  // what is settled is kept per aggregate
  bool gaps = true;             // of these: the group has events that park on a gap
  bool park_on_poison = true;
  // What is not known begins with version 1, a snapshot, or a delete and what leads up to it, not
  // with the first version seen.
  bool from_the_first = false;
};

// Decides what becomes of the events of one aggregate (those at hand and those parked before), in
// version order, and answers the aggregate's next state; `parked` is left to the caller, who knows
// which of them stand in the database. Pure.
// REQUIRES: `items` are in version order; `row.blocked` is not a version that one of the snapshots
// stands for.
KeyRow PlanKey(KeyRow row, std::span<PlanItem> items, const KeyRules& rules);

// Whether a delete would tell how the aggregate stands, and nothing else does so far.
bool BeginsUnknown(const KeyRow& row, const KeyRules& rules);

}  // namespace lockstep::runner
