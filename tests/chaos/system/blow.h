#pragma once

#include <sys/types.h>

#include <string>

#include "platform/clock.h"

namespace lockstep::chaos {

// What the run did to the runners of a group with an HTTP handler and to what they need: the reason
// why one of them may have called again for what had been answered yes.
struct Blow {
  enum class To {
    kRunner,    // killed, stopped, asked to end: what it knew may be lost, what it held comes again
    kDatabase,  // a session may have died between the answer and its COMMIT
    kEpoch,     // the group began anew: whoever was at it gave up
    kFailover,  // it did, and commits were lost
    kConsumer,  // it says neither yes nor no, so that others of the same transaction wait
    kAnswers,   // one that it gave may not have arrived
  };
  To to;
  SteadyTime begin, end;
  std::string what;
  pid_t runner = 0;  // which one, of kRunner
};

}  // namespace lockstep::chaos
