#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "sagas/engine/options.h"

namespace lockstep {
class ConfigSection;
struct HttpOptions;
}  // namespace lockstep
namespace lockstep::log {
struct Options;
}

// How an orchestrator does its work. Public: docs/sagas.md.
namespace lockstep::sagas {

// How long sagas that have ended are kept. A running orchestrator follows it.
struct RetentionOptions {
  bool enabled = true;
  Millis interval{60'000};              // how often it is looked
  Millis retention{720LL * 3'600'000};  // of Completed, Failed and Cancelled ones
  Millis dead_retention{0};             // of dead ones, not in quarantine; 0 = for ever
  int batch_size = 500;                 // sagas per DELETE
};

struct OrchestratorOptions {
  OrchestratorOptions() { engine.http.endpoint.settings.connect_timeout = Millis(5'000); }

  std::string instance;  // the leases' owner; empty = host:pid
  EngineOptions engine;  // but for its owner and seam
  RetentionOptions retention;
  bool metrics = true;
  std::string metrics_path = "/metrics";
  Millis backlog_interval{30'000};  // how often sagas are counted
  Millis ready_grace{30'000};       // readiness outlives a lost database by so long
  bool mask_keys = false;           // platform/log/masking.h

  absl::Status Validate() const;
};

// The keys of lockstep-orchestrator.
void Bind(ConfigSection& config, OrchestratorOptions& options, HttpOptions& http,
          log::Options& log);

}  // namespace lockstep::sagas
