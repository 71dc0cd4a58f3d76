#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/print.h"
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

postgres::MigrationSet SetNamed(const std::string& name) {
  if (name == "state") return sql::StateMigrations();
  if (name == "idempotency") return sql::IdempotencyMigrations();
  if (name == "saga") return sql::SagaMigrations();
  return sql::OutboxMigrations();
}

// The schema of a set: the service's own for its state, `lockstep` for the others.
std::string SchemaOf(const MigrateOptions& options) {
  return options.set == "state" ? options.schema : "lockstep";
}

absl::StatusOr<postgres::Migrator> MakeMigrator(const MigrateOptions& options,
                                                postgres::Connection& connection) {
  if (options.set == "state") {
    if (options.schema.empty()) {
      return InvalidArgument("name the service's own schema with --schema (its state_schema)");
    }
    RETURN_IF_ERROR(runner::CheckStateSchema(options.schema));
  } else if (!options.schema.empty()) {
    return InvalidArgument("the set {} lives in the schema lockstep: leave --schema away",
                           options.set);
  }
  return postgres::Migrator(connection, SchemaOf(options), SetNamed(options.set));
}

absl::Status Move(const Context& context, const MigrateOptions& options, bool up) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect(Millis(0)));  // it may have to wait
  ASSIGN_OR_RETURN(postgres::Migrator migrator, MakeMigrator(options, *connection));
  if (!up) {
    RETURN_IF_ERROR(
        context.Confirm(fmt::format("This drops tables of the set {} in the schema {} with their "
                                    "rows.",
                                    options.set, SchemaOf(options))));
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
      "service's own state in a consumer's, idempotency keys where requests must not be done "
      "twice");
  const auto o = std::make_shared<MigrateOptions>();
  const auto add = [&](const char* name, const char* help, auto... run) {
    return migrate.Add(name, help, o, run...)
        .With({{"--set",
                &o->set,
                "outbox, idempotency and saga live in the schema lockstep, state in --schema",
                Option::kShowsDefault,
                {"outbox", "state", "idempotency", "saga"}},
               {"--schema", &o->schema, "the schema of a service's state"}});
  };
  add("up", "apply what is missing", Move, /*up=*/true);
  add("down", "take migrations back", Move, /*up=*/false)
      .With({{"--to", &o->to, "the version to keep; 0 takes everything back",
              Option::kShowsDefault}});
  add("status", "what is applied", Show);
}

}  // namespace lockstep::ctl
