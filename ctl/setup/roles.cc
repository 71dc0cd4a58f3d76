// lockstepctl roles grant | revoke: the least rights, given by functions in sql/.
#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/print.h"
#include "ctl/group/runner_context.h"
#include "idempotency/keys.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outboxes.h"
#include "sagas/store/desk.h"

namespace lockstep::ctl {
namespace {

struct RolesOptions {
  // writer | publisher | runner | operator | reader | waiter | caller | starter | orchestrator
  std::string job;
  std::string role;  // the role in Postgres
  std::string outbox, schema;
  std::vector<std::string> tables;
  bool idempotency = false, saga = false;
  bool create = false;
};

// The database, and what the rights are about: one outbox, one service's state and read model, the
// idempotency keys, or the sagas.
struct Target {
  std::unique_ptr<postgres::Connection> connection;
  std::string what;
  std::function<absl::Status()> change;  // gives the rights, or takes them
};

absl::Status CheckRole(const std::string& role) {
  constexpr size_t kMaxBytes = 63;  // Postgres would cut the rest off, and mean another role
  if (!role.empty() && role.size() <= kMaxBytes) return absl::OkStatus();
  return InvalidArgument("the role is '{}': a name in Postgres has 1 to {} bytes", role, kMaxBytes);
}

absl::StatusOr<Target> OutboxTarget(const Context& context, const RolesOptions& options,
                                    const std::string& function) {
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options.outbox));
  ASSIGN_OR_RETURN(auto connection, context.Connect());
  auto change = [&session = *connection, table, function, role = options.role] {
    return publisher::ChangeRights(session, table, function, role);
  };
  return Target{std::move(connection), "outbox " + table.ToString(), std::move(change)};
}

absl::StatusOr<Target> StateTarget(const Context& context, const RolesOptions& options,
                                   const std::string& function) {
  ASSIGN_OR_RETURN(RunnerContext runner, OpenRunner(context, options.schema));
  std::vector<std::string> tables = options.tables;
  for (const runner::ConfiguredGroup& group : runner.options.groups) {
    const auto all = group.declaration->projector->AllTables();
    tables.insert(tables.end(), all.begin(), all.end());
  }
  std::vector<std::string> names;
  for (const std::string& table : tables) {
    ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
    names.push_back(name.Quoted());
  }
  const bool reads = function == "grant_reader" || function == "grant_waiter";
  std::string what = "state " + runner.options.state_schema;
  if (!reads && !tables.empty()) what += fmt::format(" and {}", fmt::join(tables, ", "));
  const std::string sql = runner.schema().Sql(fmt::format(
      "SELECT {{state}}.{}($1::regrole{})", function, reads ? "" : ", $2::text[]::regclass[]"));
  postgres::Params params(postgres::QuoteIdentifier(options.role));
  if (!reads) params.Add(names);
  auto change = [&session = *runner.connection, sql, params] { return session.Run(sql, params); };
  return Target{std::move(runner.connection), std::move(what), std::move(change)};
}

absl::StatusOr<Target> KeysTarget(const Context& context, const RolesOptions& options,
                                  const std::string& function) {
  ASSIGN_OR_RETURN(auto connection, context.Connect());
  auto change = [&session = *connection, function, role = options.role] {
    return idempotency::ChangeRights(session, function, role);
  };
  return Target{std::move(connection), "idempotency keys", std::move(change)};
}

absl::StatusOr<Target> SagaTarget(const Context& context, const RolesOptions& options,
                                  const std::string& function) {
  ASSIGN_OR_RETURN(auto connection, context.Connect());
  auto change = [&session = *connection, function, role = options.role] {
    return sagas::ChangeSagaRights(session, function, role);
  };
  return Target{std::move(connection), "sagas", std::move(change)};
}

absl::StatusOr<Target> Find(const Context& context, const RolesOptions& options,
                            const std::string& function) {
  if (options.idempotency && options.saga) {
    return InvalidArgument("--idempotency and --saga are two commands");
  }
  if (options.idempotency) return KeysTarget(context, options, function);
  if (options.saga) return SagaTarget(context, options, function);
  if (!options.outbox.empty()) return OutboxTarget(context, options, function);
  if (options.schema.empty() && context.config.empty()) {
    return InvalidArgument(
        "say on what: --outbox schema.name; or --schema (the service's state_schema) with --table "
        "for each table of its read model; or --config with the runner's file, which names both; "
        "or --idempotency; or --saga");
  }
  return StateTarget(context, options, function);
}

// Makes the role unless it is there; somebody else may be making it at the same moment.
absl::Status Create(postgres::Connection& connection, const std::string& role) {
  ASSIGN_OR_RETURN(const auto there,
                   connection.Execute("SELECT 1 FROM pg_roles WHERE rolname = $1", role));
  if (!there.empty()) return absl::OkStatus();
  const absl::Status made =
      connection.Run(fmt::format("CREATE ROLE {} LOGIN", postgres::QuoteIdentifier(role)));
  const std::string state = postgres::SqlState(made);
  return state == "42710" || state == "23505" ? absl::OkStatus() : made;
}

absl::Status Apply(const Target& target, const RolesOptions& options) {
  const absl::Status done = target.change();
  const std::string state = postgres::SqlState(done);
  if (state == "42704") {
    return NotFound("there is no role {0}: make it with CREATE ROLE {0} LOGIN, or add --create",
                    postgres::QuoteIdentifier(options.role));
  }
  if (state == "42883" || state == "3F000") {
    return FailedPrecondition(
        "this database is older than its roles, or has none of the tables: run lockstepctl migrate "
        "up");
  }
  return done;
}

// Whether there is such a job on what was named.
absl::Status CheckJob(const RolesOptions& options) {
  const bool of_keys =
      options.job == "caller" || options.job == "reader" || options.job == "operator";
  if (options.idempotency ? !of_keys : options.job == "caller") {
    return InvalidArgument(
        "with --idempotency, and there alone, the jobs are caller, reader and "
        "operator (got {})",
        options.job);
  }
  const bool of_sagas = options.job == "starter" || options.job == "orchestrator" ||
                        options.job == "reader" || options.job == "operator";
  const bool of_sagas_alone = options.job == "starter" || options.job == "orchestrator";
  if (options.saga ? !of_sagas : of_sagas_alone) {
    return InvalidArgument(
        "with --saga, and there alone, the jobs are starter, orchestrator, reader and operator "
        "(got {})",
        options.job);
  }
  const bool of_outbox = options.job == "writer" || options.job == "publisher";
  if (of_outbox && options.outbox.empty()) {
    return InvalidArgument("a {} works on an outbox: name it with --outbox", options.job);
  }
  if ((options.job == "runner" || options.job == "waiter") && !options.outbox.empty()) {
    return InvalidArgument("a {} works on a service's state: --schema or --config, no --outbox",
                           options.job);
  }
  return absl::OkStatus();
}

absl::Status Grant(const Context& context, const RolesOptions& options) {
  RETURN_IF_ERROR(CheckJob(options));
  RETURN_IF_ERROR(CheckRole(options.role));
  ASSIGN_OR_RETURN(const Target target, Find(context, options, "grant_" + options.job));
  RETURN_IF_ERROR(context.Announce(fmt::format("This gives {} the rights of a {} on {}.",
                                               options.role, options.job, target.what)));
  if (options.create) RETURN_IF_ERROR(Create(*target.connection, options.role));
  RETURN_IF_ERROR(Apply(target, options));
  return context.Answer({{"role", options.role}, {"may", options.job}, {"on", target.what}}, [&] {
    Print("{} has the rights of a {} on {}\n", options.role, options.job, target.what);
  });
}

absl::Status Revoke(const Context& context, const RolesOptions& options) {
  RETURN_IF_ERROR(CheckRole(options.role));
  ASSIGN_OR_RETURN(const Target target, Find(context, options, "revoke_rights"));
  RETURN_IF_ERROR(context.Confirm(
      fmt::format("This takes all rights on {} from {}.", target.what, options.role)));
  RETURN_IF_ERROR(Apply(target, options));
  return context.Answer({{"role", options.role}, {"revoked", target.what}}, [&] {
    Print("{} has no rights on {} any longer\n", options.role, target.what);
  });
}

}  // namespace

void AddRoles(const Command& program) {
  const Command roles = program.AddGroup(
      "roles", "the least rights for each part, given to roles of yours: docs/security.md");
  const auto o = std::make_shared<RolesOptions>();
  const std::vector<Option> on = {
      {"role", &o->role, "the role in Postgres", Option::kRequired},
      {"--outbox", &o->outbox, "an outbox, as schema.name"},
      {"--schema", &o->schema, "the schema of a service's state"},
      {"--idempotency", &o->idempotency, "the idempotency keys of the database"},
      {"--saga", &o->saga, "the sagas of the database"},
      {"--table", &o->tables,
       "a table of the read model, as schema.name; as often as needed. With "
       "--config the groups' tables are taken from it"}};
  roles
      .Add("grant",
           "give a role what its job needs and no more: on an outbox writer, publisher, "
           "operator or reader; on a service's state runner, operator, reader or waiter; on "
           "idempotency keys caller, operator or reader; on sagas starter, orchestrator, operator "
           "or reader",
           o, Grant)
      .With(
          {{"job",
            &o->job,
            "writer, publisher, runner, operator, reader, waiter, caller, starter or orchestrator",
            Option::kRequired,
            {"writer", "publisher", "runner", "operator", "reader", "waiter", "caller", "starter",
             "orchestrator"}}})
      .With(on)
      .With({{"--create", &o->create, "make the role if it is not there (no password)"}})
      .Changes(Command::kNoReason);
  roles.Add("revoke", "take a role's rights back", o, Revoke).With(on).Changes(Command::kNoReason);
}

}  // namespace lockstep::ctl
