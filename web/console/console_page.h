#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "platform/daemon/http_server.h"

namespace lockstep::web {

// The console's page at `/` and its document at /api/console. `document` is called by each request
// for it, on the server's thread: it must be quick.
// REQUIRES: `http` is not started yet.
void ServeConsole(HttpServer& http, std::function<nlohmann::json()> document);

}  // namespace lockstep::web
