#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/config_file.h"
#include "ctl/command/print.h"
#include "ctl/command/table.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "runner/service/runner_options.h"
#include "sql/migrations.h"

namespace lockstep::ctl {
namespace {

struct MigrateOptions {
  std::string set, schema;
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

// What --set and --schema leave open, the configuration file says: what a publisher works on is an
// outbox, a runner its service's state.
absl::StatusOr<MigrateOptions> Completed(const Context& context, MigrateOptions options) {
  using Kind = ConfigFile::Kind;
  ASSIGN_OR_RETURN(const ConfigFile file, ReadConfigFile(context.config));
  const bool names_database = file.kind == Kind::kPublisher || file.kind == Kind::kRunner ||
                              file.kind == Kind::kOrchestrator || file.kind == Kind::kNone;
  if (!names_database && context.database.empty()) {
    return InvalidArgument(
        "{} is {}: it names no database. Name a publisher's, runner's or orchestrator's "
        "configuration, or the database with --database",
        file.file, Describe(file.kind));
  }
  if (options.set.empty()) {
    options.set = file.kind == Kind::kRunner         ? "state"
                  : file.kind == Kind::kOrchestrator ? "saga"
                  : options.schema.empty()           ? "outbox"
                                                     : "state";
  }
  if (options.set == "state" && options.schema.empty()) options.schema = file.state_schema;
  if (options.set == "state" && options.schema.empty() && !file.file.empty()) {
    return InvalidArgument(
        "{} is {}, which says nothing of a service's state: name the runner's configuration, or "
        "the service's own schema with --schema (its state_schema)",
        file.file, Describe(file.kind));
  }
  return options;
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

absl::Status Move(const Context& context, const MigrateOptions& given, bool up) {
  ASSIGN_OR_RETURN(const MigrateOptions options, Completed(context, given));
  ASSIGN_OR_RETURN(const auto connection, context.Connect(Millis(0)));  // it may have to wait
  ASSIGN_OR_RETURN(postgres::Migrator migrator, MakeMigrator(options, *connection));
  ASSIGN_OR_RETURN(const auto states, migrator.Status());
  std::vector<int> moved;
  for (const auto& state : states) {
    if (up ? !state.applied : state.applied && state.migration.version > options.to) {
      moved.push_back(state.migration.version);
    }
  }
  const Json plan = {
      {"set", options.set}, {"schema", SchemaOf(options)}, {up ? "applies" : "undoes", moved}};
  if (up) {
    RETURN_IF_ERROR(context.Announce(
        moved.empty() ? fmt::format("The set {} in the schema {} lacks nothing.", options.set,
                                    SchemaOf(options))
                      : fmt::format("This applies {} of the set {} in the schema {}.",
                                    fmt::join(moved, ", "), options.set, SchemaOf(options)),
        plan));
  } else {
    RETURN_IF_ERROR(context.Confirm(
        fmt::format("This drops tables of the set {} in the schema {} with their rows.",
                    options.set, SchemaOf(options)),
        plan));
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
          {"applied_at", state.applied ? Json(Rfc3339(state.applied_at)) : Json(nullptr)}};
}

absl::Status Show(const Context& context, const MigrateOptions& given) {
  ASSIGN_OR_RETURN(const MigrateOptions options, Completed(context, given));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(postgres::Migrator migrator, MakeMigrator(options, *connection));
  ASSIGN_OR_RETURN(const auto states, migrator.Status());
  return context.Answer(ListOf(states, MigrationJson), [&] {
    using enum Table::Column::Kind;
    Table table({{"SET"}, {"SCHEMA"}, {"VERSION", kNumber}, {"NAME"}, {"APPLIED", kTime}});
    for (const auto& state : states) {
      table.Add({options.set, SchemaOf(options), state.migration.version, state.migration.name,
                 state.applied ? Table::Cell(Rfc3339(state.applied_at))
                               : Table::Cell("not applied", Style::kWarning)});
    }
    table.Print();
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
                "outbox, idempotency and saga live in the schema lockstep, state in --schema; "
                "without "
                "it, what the file of --config works on, else outbox",
                Option::kOptional,
                {"outbox", "state", "idempotency", "saga"}},
               {"--schema", &o->schema, "the schema of a service's state"}});
  };
  add("up", "apply what is missing", Move, /*up=*/true).Changes(Command::kNoReason);
  add("down", "take migrations back", Move, /*up=*/false)
      .With(
          {{"--to", &o->to, "the version to keep; 0 takes everything back", Option::kShowsDefault}})
      .Changes(Command::kNoReason);
  add("status", "what is applied", Show);
}

}  // namespace lockstep::ctl
