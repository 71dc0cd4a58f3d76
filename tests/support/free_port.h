#pragma once

namespace lockstep::testing {

// A port on 127.0.0.1 that nobody listens on now. For programs that can't take port 0 themselves.
int FreePort();
bool CanConnect(int port);

}  // namespace lockstep::testing
