#pragma once

#include <memory>
#include <span>

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
  // Takes a delivery apart: its payload and attributes move into the event, which is read.
  Inbound(pubsub::Delivery delivery, WallTime received_at);
  // One that was kept in the database.
  explicit Inbound(envelope::Received kept);

  pubsub::AckToken token;  // empty when it did not come from the bus
  WallTime received_at;
  bool unanswered = false;  // a handler has not accepted it yet, as of the last try
  bool aside = false;       // came over the group's second subscription: no part of its offset
  std::unique_ptr<projections::Change> change;  // null when poisoned
};

// Decodes the event and maps it to changes of the tables; what can't be mapped becomes poison, and
// so does code of a projection that throws. REQUIRES: not poison.
void MapEvent(const projections::Projector& projector, Inbound& item);

// The one whose position is a batch's offset; null when there is none, as of a batch that came
// aside.
const Inbound* NewestOf(std::span<Inbound* const> items);
// When the oldest of them was published that did not come aside; the end of time when all did.
WallTime OldestOf(std::span<Inbound* const> items);

}  // namespace lockstep::runner
