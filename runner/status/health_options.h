#pragma once

#include "platform/clock.h"

namespace lockstep {
class ConfigSection;
}

namespace lockstep::runner {

// From when on something that takes long is something that is wrong.
struct HealthOptions {
  Millis stuck_after{60'000};        // a lane with work that commits nothing for so long is stuck
  Millis database_grace{30'000};     // readiness outlives a lost database by so long
  Millis heartbeat_timeout{30'000};  // a publisher that was heard and is silent for so long is gone
  Millis quiet_after{60'000};        // nothing in hand and no commit for so long: a quiet topic
  Millis lag_alert{5 * 60'000};      // more lag than this is told on the page
};
void Bind(ConfigSection& config, HealthOptions& options);

}  // namespace lockstep::runner
