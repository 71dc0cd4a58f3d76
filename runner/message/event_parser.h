#pragma once

#include "runner/message/inbound.h"

namespace lockstep::runner {

// Reads the attributes of a message (docs/wire.md). Never fails: what can't be read makes the
// message poison, with what could be read filled in. Pure; safe from any thread.
class EventParser {
 public:
  // Takes the message apart: its payload and attributes move into the event.
  static Inbound Parse(pubsub::Delivery delivery, WallTime received_at);
};

}  // namespace lockstep::runner
