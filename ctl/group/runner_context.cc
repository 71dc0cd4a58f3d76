#include "ctl/group/runner_context.h"

#include <vector>

#include "ctl/command/config_file.h"
#include "platform/config/config.h"
#include "platform/status.h"
#include "pubsub/names.h"

namespace lockstep::ctl {

absl::StatusOr<runner::RunnerOptions> ReadRunner(const Context& context) {
  runner::RunnerOptions options;
  if (context.config.empty()) return options;
  ASSIGN_OR_RETURN(const ConfigFile file, ReadConfigFile(context.config));
  if (file.kind != ConfigFile::Kind::kRunner && file.kind != ConfigFile::Kind::kNone) {
    return InvalidArgument(
        "{} is {}; this command is about consumer groups: name a runner's configuration with "
        "--config, or the database with --database and the service's state with --schema",
        context.config, Describe(file.kind));
  }
  RETURN_IF_ERROR(Config::Read({.file = context.config},
                               [&](ConfigSection& config) { Bind(config, options); }));
  for (runner::ConfiguredGroup& group : options.groups) {
    group.options.subscription =
        pubsub::SubscriptionName(options.pubsub.project, group.options.subscription);
    if (group.options.snapshots.empty()) continue;
    group.options.snapshots =
        pubsub::SubscriptionName(options.pubsub.project, group.options.snapshots);
  }
  return options;
}

absl::StatusOr<RunnerContext> OpenRunner(const Context& context, const std::string& schema,
                                         Millis statement_timeout) {
  RunnerContext runner;
  auto options = ReadRunner(context);
  // Of another kind of file its database counts, where the schema is named.
  if (!options.ok() && !schema.empty()) {
    ASSIGN_OR_RETURN(const ConfigFile file, ReadConfigFile(context.config));
    if (file.kind == ConfigFile::Kind::kRunner) return options.status();
    options.emplace();
  }
  ASSIGN_OR_RETURN(runner.options, std::move(options));
  if (!schema.empty()) runner.options.state_schema = schema;
  RETURN_IF_ERROR(runner::CheckStateSchema(runner.options.state_schema));
  ASSIGN_OR_RETURN(runner.connection, context.Connect(statement_timeout));
  RETURN_IF_ERROR(runner.schema().Check(*runner.connection));
  return runner;
}

absl::StatusOr<RunnerContext> OpenGroup(const Context& context, const std::string& name) {
  if (context.config.empty()) {
    return InvalidArgument(
        "name the runner's configuration with --config: it says which tables and "
        "which subscription the group has");
  }
  ASSIGN_OR_RETURN(RunnerContext runner, OpenRunner(context, ""));
  RETURN_IF_ERROR(runner.options.pubsub.Validate());
  std::vector<std::string> known;
  for (runner::ConfiguredGroup& group : runner.options.groups) {
    if (group.options.name == name) runner.group = &group;
    known.push_back(group.options.name);
  }
  if (runner.group == nullptr) {
    return NotFound("the configuration has no group '{}'; it has: {}", name,
                    fmt::join(known, ", "));
  }
  ASSIGN_OR_RETURN(runner.transport, pubsub::MakeTransport(runner.options.pubsub.transport));
  return runner;
}

absl::StatusOr<GroupDesk> OpenDesk(const Context& context, const std::string& group,
                                   const std::string& schema, Millis statement_timeout) {
  GroupDesk desk{.runner = {}, .group = group};
  ASSIGN_OR_RETURN(desk.runner, OpenRunner(context, schema, statement_timeout));
  auto& groups = desk.runner.options.groups;
  if (desk.group.empty() && groups.size() == 1) desk.group = groups.front().options.name;
  if (desk.group.empty()) return InvalidArgument("name the consumer group with --group");
  for (runner::ConfiguredGroup& configured : groups) {
    if (configured.options.name == desk.group) desk.runner.group = &configured;
  }
  if (desk.runner.group != nullptr) return desk;
  const auto known =
      state::Epochs(desk.runner.schema(), ConsumerGroup(desk.group)).Load(desk.connection());
  if (known.ok()) return desk;
  if (!absl::IsNotFound(known.status())) return known.status();
  return NotFound("there is no group '{}' in schema '{}'", desk.group,
                  desk.runner.options.state_schema);
}

}  // namespace lockstep::ctl
