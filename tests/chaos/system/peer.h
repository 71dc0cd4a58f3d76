#pragma once

#include <sys/types.h>

namespace lockstep::chaos {

// Which runner of this machine has the other end of this TCP connection over 127.0.0.1; 0 if none
// can be found (any more).
pid_t ProcessBehind(int socket);

}  // namespace lockstep::chaos
