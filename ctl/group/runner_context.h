#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ctl/command/command.h"
#include "postgres/connection.h"
#include "pubsub/transport.h"
#include "runner/service/runner_options.h"
#include "state/schema.h"

namespace lockstep::ctl {

// What commands about consumer groups work on: the runner's configuration, or for those that only
// look, a database and a schema.
struct RunnerContext {
  runner::RunnerOptions options;  // subscriptions by their full names
  std::unique_ptr<postgres::Connection> connection;
  runner::ConfiguredGroup* group = nullptr;      // of the configuration: the one that was asked for
  std::unique_ptr<pubsub::Transport> transport;  // of OpenGroup

  state::Schema schema() const { return state::Schema(options.state_schema); }
};

// The file of --config; without one, the defaults.
absl::StatusOr<runner::RunnerOptions> ReadRunner(const Context& context);

// With --config everything comes from it (and --database over it); without, only --database and
// `schema` count.
absl::StatusOr<RunnerContext> OpenRunner(const Context& context, const std::string& schema,
                                         Millis statement_timeout = Millis(30'000));

// The same for a command that acts on a group: with Pub/Sub, and with the group of the
// configuration, which can't be done without.
absl::StatusOr<RunnerContext> OpenGroup(const Context& context, const std::string& name);

// What commands about a group's events work on: the runner's state, and the group's declaration
// where a file has it.
struct GroupDesk {
  RunnerContext runner;  // its group is null without --config
  std::string group;

  postgres::Connection& connection() const { return *runner.connection; }
};
// `group`: empty = the file's only one. NOT_FOUND when neither file nor state knows it.
absl::StatusOr<GroupDesk> OpenDesk(const Context& context, const std::string& group,
                                   const std::string& schema,
                                   Millis statement_timeout = Millis(30'000));

}  // namespace lockstep::ctl
