#include "runner/service/runner_options.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/log/masking.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "pubsub/names.h"

namespace lockstep::runner {
namespace {

absl::Status ReadSettings(const projections::GroupDeclaration& declaration, GroupOptions& options) {
  Config::Sources sources;
  for (const auto& [key, setting] : declaration.settings) sources.flags[key] = setting.text;
  sources.env = [](const std::string&) { return std::nullopt; };
  const absl::Status read =
      Config::Read(sources, [&](ConfigSection& config) { Bind(config, options); });
  if (read.ok()) return read;
  return InvalidArgument("{}: settings: {}", declaration.file, MessageOf(read));
}

void BindGroup(ConfigSection& section, RunnerOptions& options) {
  ConfiguredGroup group;
  section.Key("file", &group.options.file, "the YAML file that declares the group's projections");
  if (!group.options.file.empty()) {
    std::filesystem::path file(group.options.file);
    if (file.is_relative()) file = std::filesystem::path(section.Directory()) / file;
    auto declared = projections::LoadGroup(file.string(), {.state_schema = options.state_schema,
                                                           .code = options.extensions.projections});
    if (declared.ok()) {
      group.declaration = std::make_shared<projections::GroupDeclaration>(*std::move(declared));
      group.options.name = group.declaration->name.value();
      group.options.subscription = group.declaration->subscription;
      // Of a reload they can say only that a restart is wanted.
      section.Fact("projections", group.declaration->projector->Mapping());
      section.Fact("handlers", group.declaration->handlers);
      const absl::Status settings = ReadSettings(*group.declaration, group.options);
      if (!settings.ok()) section.Error(MessageOf(settings));
    } else {
      section.Error(MessageOf(declared.status()));
    }
  }
  Bind(section, group.options);
  if (group.declaration && !group.options.verify.backfills.empty()) {
    auto targets =
        LoadVerifyTargets(group.options.verify.backfills, group.declaration->projector->plan());
    if (targets.ok()) group.verified = *std::move(targets);
    if (!targets.ok()) section.Error("verify: " + std::string(MessageOf(targets.status())));
  }
  options.groups.push_back(std::move(group));
}

}  // namespace

absl::StatusOr<GroupOptions> OptionsOf(const projections::GroupDeclaration& declaration) {
  GroupOptions options;
  options.name = declaration.name.value();
  options.subscription = declaration.subscription;
  RETURN_IF_ERROR(ReadSettings(declaration, options));
  return options;
}

void Bind(ConfigSection& config, RunnerOptions& options) {
  BindDatabase(config, &options.database,
               "Postgres of the read model, as postgresql://user@host/database");
  config.Key("state_schema", &options.state_schema, "the schema of this service's own state");
  config.Key("instance", &options.instance, "this process's name; host, process and a number");
  config.Section("pubsub", [&](ConfigSection& section) { Bind(section, options.pubsub); });
  config.Section("http", [&](ConfigSection& section) { Bind(section, options.http); });
  config.Section("log", [&](ConfigSection& section) { Bind(section, options.log); });
  BindMasking(config, &options.mask_keys);
  config.Key("dead_letter_retention", &options.dead_letter_retention,
             "dead letters that were replayed or discarded are kept so long; 0 = for ever");
  config.Key("audit_retention", &options.audit_retention,
             "what was audited is kept so long, 30 days at least; 0 = for ever");
  config.Section("metrics", [&](ConfigSection& section) {
    section.Key("enabled", &options.metrics_enabled, "serve metrics", "PROMETHEUS_METRICS_ENABLED");
    section.Key("path", &options.metrics_path, "where", "PROMETHEUS_METRICS_PATH");
  });
  config.Section("health", [&](ConfigSection& section) { Bind(section, options.health); });
  config.Key("once_quiet", &options.once_quiet,
             "with --once: end when nothing has come for so long");
  config.Key("once_timeout", &options.once_timeout,
             "with --once: give up on a database or a Pub/Sub that is away for so long");
  options.groups.clear();
  config.List("groups", "file", [&](ConfigSection& section) { BindGroup(section, options); });
}

absl::Status CheckStateSchema(const std::string& name) {
  // As part of a table's name: the rules are the same.
  if (postgres::QualifiedName::Parse(postgres::QuoteIdentifier(name) + ".inbox").ok()) {
    return absl::OkStatus();
  }
  return InvalidArgument("the state schema is '{}': a name in Postgres has 1 to 63 bytes", name);
}

absl::Status RunnerOptions::Validate() const {
  if (database.empty()) {
    return InvalidArgument(
        "no database is named: set `database` in the configuration, LOCKSTEP_DATABASE or "
        "--database");
  }
  RETURN_IF_ERROR(CheckStateSchema(state_schema));
  if (groups.empty()) {
    return InvalidArgument("there are no groups: name at least one under `groups`");
  }
  RETURN_IF_ERROR(pubsub.Validate());
  std::set<std::string> names;
  for (const ConfiguredGroup& group : groups) {
    RETURN_IF_ERROR(group.options.Validate());
    if (group.declaration == nullptr) {
      return InvalidArgument("group '{}' has no file that declares its projections",
                             group.options.name);
    }
    if (group.options.inbox == InboxMode::kAggregate) {
      RETURN_IF_ERROR(
          CheckByVersions(group.options.name, group.options.on_gap, *group.declaration->projector));
    }
    if (!names.insert(group.options.name).second) {
      return InvalidArgument("group '{}' is there twice", group.options.name);
    }
  }
  for (const auto& [group, code] : extensions.projections) {
    const auto is_its = [&](const ConfiguredGroup& configured) {
      return configured.declaration && configured.declaration->name.value() == group;
    };
    if (std::ranges::any_of(groups, is_its)) continue;
    return InvalidArgument("there are projections in C++ for group '{}', which no file declares",
                           group);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::runner
