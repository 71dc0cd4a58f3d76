#pragma once

#include <cstdint>
#include <span>

#include "runner/batch/fate.h"
#include "state/events/key_states.h"

namespace lockstep::runner {

using state::KeyRow;

// One event of the aggregate: what is known of it, and what PlanKey decides: kApplied stands for
// "to be applied".
struct PlanItem {
  int64_t version = 0;
  bool poison = false;
  bool parks_on_gap = false;
  Fate fate = Fate::kWaitsForPredecessor;
};

struct KeyRules {
  bool track_versions = false;  // the group has events that park on a gap
  bool park_on_poison = true;
};

// Decides what becomes of the events of one aggregate (those at hand and those parked before), in
// version order, and answers the aggregate's next state; `parked` is left to the caller, who knows
// which of them stand in the database. Pure.
// REQUIRES: `items` are in version order.
KeyRow PlanKey(KeyRow row, std::span<PlanItem> items, const KeyRules& rules);

}  // namespace lockstep::runner
