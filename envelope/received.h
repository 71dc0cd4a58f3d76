#pragma once

#include <optional>
#include <string>

#include "envelope/event.h"
#include "envelope/poison.h"
#include "platform/clock.h"
#include "platform/strong_id.h"

namespace lockstep::envelope {

// A message as it came: from the bus, or as it was kept, parked or dead.
struct Received {
  MessageId message_id;
  std::string ordering_key;
  WallTime publish_time;

  // Attributes and payload always; the rest as far as it could be read.
  Event event;
  std::string aggregate_key;  // empty when the aggregate could not be read
  bool has_version = false;

  std::optional<Poison> poison;
  int attempts = 0;  // transactions that failed with it

  // Whether it has a place in the order of an aggregate. What has none blocks nothing.
  bool ordered() const { return !aggregate_key.empty() && has_version && !event.event_id.empty(); }
};

// Reads the attributes (docs/wire.md) into the event. Never fails: what can't be read makes the
// message poison, with what could be read filled in. Pure; safe from any thread. REQUIRES: nothing
// was read yet.
void ReadAttributes(Received& message);

}  // namespace lockstep::envelope
