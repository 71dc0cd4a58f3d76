#pragma once

#include <string>
#include <vector>

#include "pubsub/transport.h"

namespace lockstep::chaos {

struct Witnessed {
  std::string event_id;
  std::string key;
  int backfill = 0;  // the number of the one that sent it; 0 = an event
};

// Everything that Pub/Sub was given, in the order in which it took it, repeated messages too. Read
// from a subscription that nobody else has touched, until `events` different events have come and
// no message comes any more that is new to us (the emulator loses acks and repeats deliveries as it
// does to all).
std::vector<Witnessed> ReadWitness(pubsub::Transport& transport, const std::string& subscription,
                                   size_t events);

}  // namespace lockstep::chaos
