#pragma once

#include <string>

#include "absl/status/status.h"
#include "platform/daemon/http_server.h"
#include "platform/metrics.h"

namespace lockstep {

// Adds to the endpoint of a daemon what every one has, and starts it unless it is not enabled:
// /healthz (the process lives), /readyz as `ready` answers it, and the metrics at `metrics_path`
// (empty = not). The status page is web::StatusPage's to add, before.
absl::Status ServePages(HttpServer& http, HttpServer::Handler ready, const MetricsRegistry& metrics,
                        const std::string& metrics_path);

}  // namespace lockstep
