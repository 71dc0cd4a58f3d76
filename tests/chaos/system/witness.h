#pragma once

#include <string>
#include <vector>

#include "pubsub/transport.h"

namespace lockstep::chaos {

// Everything that Pub/Sub was given, in the order in which it took it: the event ids, repeated ones
// too. Read from a subscription that nobody else has touched, until `events` different ones have
// come and no message comes any more that is new to us (the emulator loses acks and repeats
// deliveries as it does to all).
std::vector<std::string> ReadWitness(pubsub::Transport& transport, const std::string& subscription,
                                     size_t events);

}  // namespace lockstep::chaos
