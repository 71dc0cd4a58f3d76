#pragma once

#include <cstdint>

#include "platform/clock.h"
#include "runner/options/group_options.h"

namespace lockstep::runner {

// How long a batch may grow, and to how many messages, before a lane takes it.
struct Gathering {
  Millis linger{0};
  int64_t enough = 0;

  // Without a configured linger a lane takes what there is. But one lane can come to hold nearly
  // all that flow control allows; the others live on crumbs then, and their many small transactions
  // take from it the CPU that it needs to get through: a state that lasts. So while nearly
  // everything allowed is in hand, a lane that has crumbs only lets them gather for a moment.
  static Gathering For(const GroupOptions& options, int64_t in_hand) {
    constexpr Millis kMoment{20};
    if (options.linger > Millis(0)) return {options.linger, options.max_batch};
    const int64_t allowed = options.max_outstanding_messages;
    if (in_hand < allowed / 4 * 3) return {};
    const int64_t share = allowed / options.lanes;
    return {kMoment, share / 4 < options.max_batch ? share / 4 : options.max_batch};
  }
};

}  // namespace lockstep::runner
