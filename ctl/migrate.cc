#include <fmt/format.h>

#include "ctl/command.h"
#include "ctl/print.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "runner/service/runner_options.h"
#include "sql/migrations.h"

namespace lockstep::ctl {
namespace {

struct MigrateOptions {
  std::string set = "outbox";
  std::string schema;
  int to = 0;
};

absl::StatusOr<postgres::Migrator> MakeMigrator(const MigrateOptions& options,
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

absl::Status Move(const Context& context, const MigrateOptions& options, bool up) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect(Millis(0)));  // it may have to wait
  ASSIGN_OR_RETURN(postgres::Migrator migrator, MakeMigrator(options, *connection));
  if (!up) {
    RETURN_IF_ERROR(
        context.Confirm(fmt::format("This drops tables of {} with their rows.",
                                    options.set == "outbox" ? "lockstep" : options.schema)));
  }
  ASSIGN_OR_RETURN(const std::vector<int> done, up ? migrator.Up() : migrator.Down(options.to));
  return context.Answer({{up ? "applied" : "undone", done}}, [&] {
    if (done.empty()) {
      Print("{}: nothing to do\n", options.set);
    } else {
      Print("{}: {} {}\n", options.set, up ? "applied" : "undone", fmt::join(done, ", "));
    }
  });
}

Json MigrationJson(const postgres::Migrator::State& state) {
  return {{"version", state.migration.version},
          {"name", state.migration.name},
          {"applied_at", state.applied ? Json(state.applied_at) : Json(nullptr)}};
}

absl::Status Show(const Context& context, const MigrateOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(postgres::Migrator migrator, MakeMigrator(options, *connection));
  ASSIGN_OR_RETURN(const auto states, migrator.Status());
  return context.Answer(ListOf(states, MigrationJson), [&] {
    for (const auto& state : states) {
      Print("{:03} {:<24} {}\n", state.migration.version, state.migration.name,
            state.applied ? state.applied_at : "not applied");
    }
  });
}

}  // namespace

void AddMigrate(const Command& program) {
  const Command migrate = program.AddGroup(
      "migrate",
      "bring Lockstep's tables to this version: the outbox's in a source's database, a "
      "service's own state in a consumer's");
  const auto o = std::make_shared<MigrateOptions>();
  const auto add = [&](const char* name, const char* help, auto... run) {
    return migrate.Add(name, help, o, run...)
        .With({{"--set",
                &o->set,
                "outbox (schema lockstep) or state (--schema)",
                Option::kShowsDefault,
                {"outbox", "state"}},
               {"--schema", &o->schema, "the schema of a service's state"}});
  };
  add("up", "apply what is missing", Move, /*up=*/true);
  add("down", "take migrations back", Move, /*up=*/false)
      .With({{"--to", &o->to, "the version to keep; 0 takes everything back",
              Option::kShowsDefault}});
  add("status", "what is applied", Show);
}

}  // namespace lockstep::ctl
