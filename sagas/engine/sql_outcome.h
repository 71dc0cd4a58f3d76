#pragma once

#include "absl/status/status.h"
#include "platform/clock.h"
#include "sagas/engine/attempt.h"

namespace lockstep::sagas {

// The longest that an sql: step may take, whatever its timeout.
inline constexpr Millis kLongestSql{600'000};

// What a statement's failure means to the step that it was for. It was rolled back: nothing was
// done. Pure.
Outcome OutcomeOf(const absl::Status& failed);

}  // namespace lockstep::sagas
