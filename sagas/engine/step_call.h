#pragma once

#include <string>

#include "sagas/engine/call.h"
#include "sagas/engine/hand.h"

namespace lockstep::sagas {

// The step as whoever does it sees it. REQUIRES: the saga has it.
StepCall CallFor(const Held& held, int step, bool undo, Json request);
// Not begun yet: as it is stored, but for whether it is its undoing.
StoredStep Beginning(const Held& held, int step, bool undo);

}  // namespace lockstep::sagas
