#pragma once

#include "runner/message/inbound.h"

namespace lockstep::runner {

// Decodes the event and maps it to changes of the tables; what can't be mapped becomes poison, and
// so does code of a projection that throws. REQUIRES: not poison.
void MapEvent(const projections::Projector& projector, Inbound& item);

}  // namespace lockstep::runner
