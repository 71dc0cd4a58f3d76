#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ctl/command.h"
#include "runner/service/runner_options.h"
#include "state/schema.h"

namespace lockstep::pubsub {
class Transport;
}

namespace lockstep::ctl {

// What commands about consumer groups work on: the runner's configuration, or for those that only
// look, a database and a schema.
struct RunnerContext {
  runner::RunnerOptions options;
  std::unique_ptr<postgres::Connection> connection;

  state::Schema schema() const { return state::Schema(options.state_schema); }
  // The group of the configuration, its subscription as a full name.
  absl::StatusOr<runner::ConfiguredGroup*> Group(const std::string& name);
};

// With --config everything comes from it (and --database over it); without, only --database and
// `schema` count.
absl::StatusOr<RunnerContext> OpenRunner(const Context& context, const std::string& schema);

// The same where the configuration can't be done without: Pub/Sub and the projections are needed.
absl::StatusOr<RunnerContext> OpenConfiguredRunner(const Context& context);

// Who runs this command, for the audit.
std::string OperatorName();

}  // namespace lockstep::ctl
