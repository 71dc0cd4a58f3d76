#pragma once

#include <memory>
#include <utility>

#include "envelope/received.h"
#include "platform/clock.h"
#include "projections/model/projector.h"
#include "pubsub/message.h"

namespace lockstep::runner {

using envelope::Poison;

// One message in the runner's hands, from its delivery (or from parking, or out of the dead
// letters) to its end. Moves along the pipeline; always in one thread's hands.
struct Inbound : envelope::Received {
  Inbound() = default;
  // One that was kept in the database.
  explicit Inbound(envelope::Received kept)
      : Received(std::move(kept)), received_at(Clock::System().Now()) {}

  pubsub::AckToken token;  // empty when it did not come from the bus
  WallTime received_at;
  std::unique_ptr<projections::Change> change;  // null when poisoned
};

}  // namespace lockstep::runner
