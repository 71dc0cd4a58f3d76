#include <fmt/format.h>

#include "ctl/command.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "runner/service/runner_options.h"
#include "sql/migrations.h"

namespace lockstep::ctl {
namespace {

struct Options {
  std::string set = "outbox";
  std::string schema;
  int to = 0;
};

absl::StatusOr<postgres::Migrator> MakeMigrator(const Options& options,
                                                postgres::Connection& connection) {
  const bool outbox = options.set == "outbox";
  if (!outbox && options.schema.empty()) {
    return InvalidArgument("name the service's own schema with --schema (its state_schema)");
  }
  if (!outbox) RETURN_IF_ERROR(runner::CheckStateSchema(options.schema));
  auto migrations = outbox ? sql::OutboxMigrations() : sql::StateMigrations();
  return postgres::Migrator(connection, outbox ? "lockstep" : options.schema,
                            std::move(migrations));
}

absl::Status Move(const Context& context, const Options& options, bool up) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(postgres::Migrator migrator, MakeMigrator(options, *connection));
  if (!up && !context.Confirm(fmt::format("This drops tables of {} with their rows.",
                                          options.set == "outbox" ? "lockstep" : options.schema))) {
    return absl::CancelledError("nothing was changed");
  }
  ASSIGN_OR_RETURN(const std::vector<int> done, up ? migrator.Up() : migrator.Down(options.to));
  context.Answer({{up ? "applied" : "undone", done}}, [&] {
    if (done.empty()) {
      fmt::print("{}: nothing to do\n", options.set);
    } else {
      fmt::print("{}: {} {}\n", options.set, up ? "applied" : "undone", fmt::join(done, ", "));
    }
  });
  return absl::OkStatus();
}

absl::Status Show(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(postgres::Migrator migrator, MakeMigrator(options, *connection));
  ASSIGN_OR_RETURN(const auto states, migrator.Status());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& state : states) {
    list.push_back({{"version", state.migration.version},
                    {"name", state.migration.name},
                    {"applied_at", state.applied ? nlohmann::ordered_json(state.applied_at)
                                                 : nlohmann::ordered_json(nullptr)}});
  }
  context.Answer(list, [&] {
    for (const auto& state : states) {
      fmt::print("{:03} {:<24} {}\n", state.migration.version, state.migration.name,
                 state.applied ? state.applied_at : "not applied");
    }
  });
  return absl::OkStatus();
}

}  // namespace

void AddMigrate(const Command& program) {
  const Command migrate = program.AddGroup(
      "migrate",
      "bring Lockstep's tables to this version: the outbox's in a source's database, a "
      "service's own state in a consumer's");
  const auto options = std::make_shared<Options>();  // outlives this function with the callbacks
  const auto add = [&](const char* name, const char* help, const Run& run) {
    return migrate.Add(name, help, run)
        .OneOf("--set", options->set, "outbox (schema lockstep) or state (--schema)",
               {"outbox", "state"}, Command::Need::kShowsDefault)
        .Option("--schema", options->schema, "the schema of a service's state");
  };
  add("up", "apply what is missing",
      [options](const Context& c) { return Move(c, *options, true); });
  add("down", "take migrations back", [options](const Context& c) {
    return Move(c, *options, false);
  }).WithDefault("--to", options->to, "the version to keep; 0 takes everything back");
  add("status", "what is applied", [options](const Context& c) { return Show(c, *options); });
}

}  // namespace lockstep::ctl
