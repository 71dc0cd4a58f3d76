#include "ctl/group_context.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "platform/config/config.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "pubsub/names.h"

namespace lockstep::ctl {

absl::StatusOr<runner::ConfiguredGroup*> RunnerContext::Group(const std::string& name) {
  std::string known;
  for (runner::ConfiguredGroup& group : options.groups) {
    if (group.options.name == name) return &group;
    known += (known.empty() ? "" : ", ") + group.options.name;
  }
  return NotFound("the configuration has no group '{}'; it has: {}", name, known);
}

absl::StatusOr<RunnerContext> OpenRunner(const Context& context, const std::string& schema) {
  RunnerContext runner;
  if (!context.config.empty()) {
    RETURN_IF_ERROR(Config::Read({.file = context.config},
                                 [&](ConfigSection& config) { Bind(config, runner.options); }));
    for (runner::ConfiguredGroup& group : runner.options.groups) {
      group.options.subscription =
          pubsub::SubscriptionName(runner.options.pubsub.project, group.options.subscription);
    }
  }
  if (!schema.empty()) runner.options.state_schema = schema;
  RETURN_IF_ERROR(runner::CheckStateSchema(runner.options.state_schema));
  ASSIGN_OR_RETURN(runner.connection, context.Connect());
  RETURN_IF_ERROR(runner.schema().Check(*runner.connection));
  return runner;
}

absl::StatusOr<RunnerContext> OpenConfiguredRunner(const Context& context) {
  if (context.config.empty()) {
    return InvalidArgument(
        "name the runner's configuration with --config: it says which tables and "
        "which subscription the group has");
  }
  ASSIGN_OR_RETURN(RunnerContext runner, OpenRunner(context, ""));
  RETURN_IF_ERROR(runner.options.pubsub.Validate());
  return runner;
}

std::string OperatorName() {
  for (const char* name : {"LOCKSTEP_OPERATOR", "USER", "LOGNAME"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  const passwd* const entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : "unknown";
}

}  // namespace lockstep::ctl
