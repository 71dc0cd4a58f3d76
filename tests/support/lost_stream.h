#pragma once

#include <string>

namespace lockstep::testing {

// Opens a stream under `client_id`, reads one response and is gone with it, as when a connection is
// cut or a runner dies: what was in it stays leased. False when there was nothing to read.
bool TakeAndBreakOff(const std::string& address, const std::string& subscription,
                     const std::string& client_id);

}  // namespace lockstep::testing
