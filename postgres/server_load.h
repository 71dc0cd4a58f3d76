#pragma once

#include <string>

#include "absl/status/status.h"
#include "platform/metrics.h"
#include "postgres/connection.h"

namespace lockstep::postgres {

// How many connections the server has and how many it allows, whoever holds them: at the limit
// nobody gets in, and every daemon asks itself why. As gauges; one thread's.
class ServerLoad {
 public:
  ServerLoad(MetricsRegistry& metrics, const std::string& role);

  absl::Status Read(Connection& connection);

 private:
  prometheus::Gauge& connections_;
  prometheus::Gauge& most_;
};

}  // namespace lockstep::postgres
