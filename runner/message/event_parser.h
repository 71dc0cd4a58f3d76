#pragma once

#include "runner/message/inbound.h"

namespace lockstep::runner {

// Takes a delivery apart: its payload and attributes move into the event, which is read. Pure; safe
// from any thread.
class EventParser {
 public:
  static Inbound Parse(pubsub::Delivery delivery, WallTime received_at);
};

}  // namespace lockstep::runner
