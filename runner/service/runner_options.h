#pragma once

#include <memory>
#include <string>
#include <vector>

#include "platform/daemon/http_server.h"
#include "platform/log/log.h"
#include "projections/declare/group_file.h"
#include "pubsub/config.h"
#include "runner/options/group_options.h"
#include "runner/service/runner.h"
#include "runner/status/health_options.h"
#include "runner/verify/verify_target.h"

namespace lockstep::runner {

// A group of the configuration, with the file that declares its projections.
struct ConfiguredGroup {
  GroupOptions options;
  std::shared_ptr<projections::GroupDeclaration> declaration;  // null in --help
  std::vector<VerifyTarget> verified;                          // what options.verify comes to
};

struct RunnerOptions {
  std::string database;
  std::string state_schema = "lockstep_state";
  std::string instance;  // empty = host, process and a random number
  pubsub::PubsubOptions pubsub;
  HttpOptions http;
  log::Options log;
  bool mask_keys = false;                           // platform/log/masking.h
  Millis dead_letter_retention{90LL * 86'400'000};  // of those that are resolved; 0 = for ever
  Millis audit_retention{400LL * 86'400'000};       // at least 30 days; 0 = for ever
  bool metrics_enabled = true;
  std::string metrics_path = "/metrics";
  Millis once_quiet{2'000};
  Millis once_timeout{30'000};  // --once gives up on a database or bus that is away for so long
  HealthOptions health;
  std::vector<ConfiguredGroup> groups;
  Extensions extensions;  // not in the configuration. REQUIRES: set before Bind

  absl::Status Validate() const;
};

void Bind(ConfigSection& config, RunnerOptions& options);

// A group as its file alone declares it: `settings:` are defaults under the runner's configuration.
absl::StatusOr<GroupOptions> OptionsOf(const projections::GroupDeclaration& declaration);

// OK when Postgres keeps the name as it is. It would cut a longer one off in silence, and two
// services could then share a schema.
absl::Status CheckStateSchema(const std::string& name);

}  // namespace lockstep::runner
