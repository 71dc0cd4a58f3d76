// lockstepctl roles grant | revoke: the least rights, given by functions in sql/.
#include <fmt/format.h>

#include "ctl/command.h"
#include "ctl/group_context.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::ctl {
namespace {

using postgres::Params;

struct Options {
  std::string job;   // writer | publisher | runner | operator | reader
  std::string role;  // the role in Postgres
  std::string outbox;
  std::string schema;
  std::vector<std::string> tables;
  bool create = false;
};

// The database, and what the rights are about: one outbox, or one service's state and read model.
struct Target {
  std::unique_ptr<postgres::Connection> connection;
  std::string sql;  // takes the outbox, or the read model's tables, as $2
  std::string what;
  Params params;
};

absl::Status CheckRole(const std::string& role) {
  constexpr size_t kMaxBytes = 63;  // Postgres would cut the rest off, and mean another role
  if (!role.empty() && role.size() <= kMaxBytes) return absl::OkStatus();
  return InvalidArgument("the role is '{}': a name in Postgres has 1 to {} bytes", role, kMaxBytes);
}

absl::StatusOr<Target> OutboxTarget(const Context& context, const Options& options,
                                    const std::string& function) {
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options.outbox));
  Target target;
  ASSIGN_OR_RETURN(target.connection, context.Connect());
  target.sql = fmt::format("SELECT lockstep.{}($2::regclass, $1::regrole)", function);
  target.what = "outbox " + table.ToString();
  target.params.Add(postgres::QuoteIdentifier(options.role)).Add(table.Quoted());
  return target;
}

absl::StatusOr<Target> StateTarget(const Context& context, const Options& options,
                                   const std::string& function) {
  ASSIGN_OR_RETURN(RunnerContext runner, OpenRunner(context, options.schema));
  std::vector<std::string> tables = options.tables;
  for (const runner::ConfiguredGroup& group : runner.options.groups) {
    for (const std::string& table : group.declaration->projector->Tables()) tables.push_back(table);
  }
  postgres::Array names;
  for (const std::string& table : tables) {
    ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
    names.Add(std::string_view(name.Quoted()));
  }
  Target target;
  target.connection = std::move(runner.connection);
  const bool reader = function == "grant_reader";
  target.sql = runner.schema().Sql(fmt::format("SELECT {{state}}.{}($1::regrole{})", function,
                                               reader ? "" : ", $2::text[]::regclass[]"));
  target.what = "state " + runner.options.state_schema;
  if (!reader && !tables.empty()) target.what += fmt::format(" and {}", fmt::join(tables, ", "));
  target.params.Add(postgres::QuoteIdentifier(options.role));
  if (!reader) target.params.Add(names);
  return target;
}

absl::StatusOr<Target> Find(const Context& context, const Options& options,
                            const std::string& function) {
  if (!options.outbox.empty()) return OutboxTarget(context, options, function);
  if (options.schema.empty() && context.config.empty()) {
    return InvalidArgument(
        "say on what: --outbox schema.name; or --schema (the service's state_schema) with --table "
        "for each table of its read model; or --config with the runner's file, which names both");
  }
  return StateTarget(context, options, function);
}

// Makes the role unless it is there; somebody else may be making it at the same moment.
absl::Status Create(postgres::Connection& connection, const std::string& role) {
  ASSIGN_OR_RETURN(const auto there,
                   connection.Execute("SELECT 1 FROM pg_roles WHERE rolname = $1", role));
  if (!there.empty()) return absl::OkStatus();
  const auto made =
      connection.Execute(fmt::format("CREATE ROLE {} LOGIN", postgres::QuoteIdentifier(role)));
  const std::string state = postgres::SqlState(made.status());
  if (state == "42710" || state == "23505") return absl::OkStatus();
  return made.status();
}

absl::Status Apply(Target& target, const Options& options) {
  const auto done = target.connection->Execute(target.sql, target.params);
  if (done.ok()) return absl::OkStatus();
  const std::string state = postgres::SqlState(done.status());
  if (state == "42704") {
    return NotFound("there is no role {0}: make it with CREATE ROLE {0} LOGIN, or add --create",
                    postgres::QuoteIdentifier(options.role));
  }
  if (state == "42883" || state == "3F000") {
    return FailedPrecondition(
        "this database is older than its roles, or has none of the tables: run lockstepctl migrate "
        "up");
  }
  return done.status();
}

absl::Status Grant(const Context& context, const Options& options) {
  const bool of_outbox = options.job == "writer" || options.job == "publisher";
  if (of_outbox && options.outbox.empty()) {
    return InvalidArgument("a {} works on an outbox: name it with --outbox", options.job);
  }
  if (options.job == "runner" && !options.outbox.empty()) {
    return InvalidArgument(
        "a runner works on a service's state: --schema or --config, no --outbox");
  }
  RETURN_IF_ERROR(CheckRole(options.role));
  ASSIGN_OR_RETURN(Target target, Find(context, options, "grant_" + options.job));
  if (options.create) RETURN_IF_ERROR(Create(*target.connection, options.role));
  RETURN_IF_ERROR(Apply(target, options));
  context.Answer({{"role", options.role}, {"may", options.job}, {"on", target.what}}, [&] {
    fmt::print("{} has the rights of a {} on {}\n", options.role, options.job, target.what);
  });
  return absl::OkStatus();
}

absl::Status Revoke(const Context& context, const Options& options) {
  RETURN_IF_ERROR(CheckRole(options.role));
  ASSIGN_OR_RETURN(Target target, Find(context, options, "revoke_rights"));
  if (!context.Confirm(
          fmt::format("This takes all rights on {} from {}.", target.what, options.role))) {
    return absl::CancelledError("nothing was changed");
  }
  RETURN_IF_ERROR(Apply(target, options));
  context.Answer({{"role", options.role}, {"revoked", target.what}}, [&] {
    fmt::print("{} has no rights on {} any longer\n", options.role, target.what);
  });
  return absl::OkStatus();
}

}  // namespace

void AddRoles(CLI::App& app, Context& context) {
  auto* roles = app.add_subcommand(
      "roles", "the least rights for each part, given to roles of yours: docs/security.md");
  roles->require_subcommand(1);
  const auto options = std::make_shared<Options>();  // outlives this function with the callbacks
  const auto on = [&](CLI::App* command) {
    command->add_option("--outbox", options->outbox, "an outbox, as schema.name");
    command->add_option("--schema", options->schema, "the schema of a service's state");
    command->add_option("--table", options->tables,
                        "a table of the read model, as schema.name; as often as needed. With "
                        "--config the groups' tables are taken from it");
  };
  auto* grant = roles->add_subcommand(
      "grant",
      "give a role what its job needs and no more: on an outbox writer, publisher, operator or "
      "reader; on a service's state runner, operator or reader");
  grant->add_option("job", options->job, "writer, publisher, runner, operator or reader")
      ->required()
      ->check(CLI::IsMember({"writer", "publisher", "runner", "operator", "reader"}));
  grant->add_option("role", options->role, "the role in Postgres")->required();
  on(grant);
  grant->add_flag("--create", options->create, "make the role if it is not there (no password)");
  On(grant, context, [options](const Context& c) { return Grant(c, *options); });
  auto* revoke = roles->add_subcommand("revoke", "take a role's rights back");
  revoke->add_option("role", options->role, "the role in Postgres")->required();
  on(revoke);
  On(revoke, context, [options](const Context& c) { return Revoke(c, *options); });
}

}  // namespace lockstep::ctl
