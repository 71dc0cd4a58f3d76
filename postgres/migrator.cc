#include "postgres/migrator.h"

#include <fmt/format.h>

#include <map>
#include <regex>
#include <thread>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::postgres {
namespace {

// hashtextextended makes one lock per schema out of its name. Not waited for: a statement that
// waits has a snapshot, which an index that is made concurrently would wait for.
constexpr char kLock[] =
    "SELECT pg_try_advisory_xact_lock(hashtextextended('lockstep.migrate.' || $1, 0)) AS locked";
// The server takes it from a process that was stopped.
constexpr char kSessionLock[] = R"sql(
SELECT locked, CASE WHEN locked THEN set_config('idle_session_timeout', '5min', false) END
FROM pg_try_advisory_lock(hashtextextended('lockstep.migrate.' || $1, 0)) AS locked)sql";
constexpr char kSessionUnlock[] = R"sql(
SELECT pg_advisory_unlock(hashtextextended('lockstep.migrate.' || $1, 0)),
       set_config('idle_session_timeout', '0', false))sql";
constexpr char kCreateTable[] = R"sql(
CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
  set_name text NOT NULL,
  version int NOT NULL,
  name text NOT NULL,
  md5 text NOT NULL,
  incompatible boolean NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (set_name, version)))sql";
constexpr char kHasTable[] = "SELECT to_regclass($1) IS NOT NULL AS found";
constexpr char kApplied[] =
    "SELECT version, md5, applied_at FROM {schema}.schema_migrations WHERE set_name = $1";
constexpr char kIsApplied[] =
    "SELECT 1 FROM {schema}.schema_migrations WHERE set_name = $1 AND version = $2";
constexpr char kSearchPath[] = "SET LOCAL search_path = {schema}, pg_temp";
constexpr char kSessionPath[] = "SET search_path = {schema}, pg_temp";
constexpr char kUsualPath[] = "SET search_path = pg_catalog, pg_temp";
constexpr char kRecord[] =
    "INSERT INTO {schema}.schema_migrations (set_name, version, name, incompatible, md5) "
    "VALUES ($1, $2, $3, $4, md5($5))";
constexpr char kForget[] =
    "DELETE FROM {schema}.schema_migrations WHERE set_name = $1 AND version = $2";
constexpr char kVersion[] = R"sql(
SELECT coalesce(max(version), 0) AS at,
       coalesce(max(version) FILTER (WHERE incompatible), 0) AS needed
FROM {schema}.schema_migrations WHERE set_name = $1)sql";

constexpr std::string_view kLockNotAvailable = "55P03";
constexpr std::string_view kUndefinedTable = "42P01";
constexpr std::string_view kUndefinedSchema = "3F000";

std::string In(const std::string& schema, std::string_view sql) {
  return FillNames(sql, {{"schema", QuoteIdentifier(schema)}});
}

absl::Status Lock(Executor& executor, const char* statement, const std::string& schema) {
  ASSIGN_OR_RETURN(const Result lock, executor.Execute(statement, schema));
  if (lock[0].Bool("locked")) return absl::OkStatus();
  return SqlError(kLockNotAvailable, "another migration of the schema is under way");
}

}  // namespace

bool Migration::incompatible() const { return up.starts_with("-- incompatible"); }
bool Migration::concurrent() const { return up.starts_with("-- concurrently"); }

absl::StatusOr<std::vector<Migration>> ParseMigrations(const std::vector<MigrationFile>& files) {
  static const std::regex kName(R"((?:.*/)?0*([1-9]\d{0,8})_(.*)\.(up|down)\.sql)");
  std::map<int, Migration> steps;
  for (const MigrationFile& file : files) {
    std::cmatch name;
    if (!std::regex_match(file.name.data(), file.name.data() + file.name.size(), name, kName)) {
      return InvalidArgument(
          "{} is not named like a migration (NNN_name.up.sql, NNN_name.down.sql)", file.name);
    }
    const int version = std::stoi(name[1]);
    Migration& step = steps[version];
    if (!step.name.empty() && step.name != name[2]) {
      return InvalidArgument("migration {} has two names: {} and {}", version, step.name,
                             name.str(2));
    }
    step.version = version;
    step.name = name[2];
    (name[3] == "up" ? step.up : step.down) = file.text;
  }
  std::vector<Migration> migrations;
  for (auto& [version, step] : steps) {
    if (version != static_cast<int>(migrations.size()) + 1) {
      return InvalidArgument("migration {} is missing before {}", migrations.size() + 1, version);
    }
    if (step.up.empty() || step.down.empty()) {
      return InvalidArgument("migration {} needs both an .up.sql and a .down.sql", version);
    }
    migrations.push_back(std::move(step));
  }
  return migrations;
}

Migrator::Migrator(Connection& connection, std::string schema, MigrationSet set, LockWait wait)
    : connection_(connection), schema_(std::move(schema)), set_(std::move(set)), wait_(wait) {}

absl::StatusOr<std::vector<Migrator::State>> Migrator::Status() {
  std::vector<State> states;
  for (const Migration& migration : set_.steps) states.push_back({.migration = migration});
  ASSIGN_OR_RETURN(const Result table,
                   connection_.Execute(kHasTable, In(schema_, "{schema}.schema_migrations")));
  if (!table[0].Bool("found")) return states;
  ASSIGN_OR_RETURN(const Result rows, connection_.Execute(In(schema_, kApplied), set_.name));
  for (const Row row : rows) {
    const size_t version = row.Int("version");
    if (version > states.size()) {
      return FailedPrecondition(
          "schema {} is at migration {} of the set {}, which this version of Lockstep does not "
          "know; use the version that made it, or a newer one",
          schema_, version, set_.name);
    }
    State& state = states[version - 1];
    state.applied = true;
    state.applied_at = row.Text("applied_at");
    ASSIGN_OR_RETURN(const Result sum,
                     connection_.Execute("SELECT md5($1) AS md5", state.migration.up));
    if (sum[0].Text("md5") != row.Text("md5")) {
      return FailedPrecondition(
          "migration {} of the set {} in schema {} was changed after it was applied; restore its "
          "text and add a new migration instead",
          version, set_.name, schema_);
    }
  }
  return states;
}

absl::Status Migrator::Prepare() {
  ASSIGN_OR_RETURN(Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(Lock(transaction, kLock, schema_));
  ASSIGN_OR_RETURN(const Result exists,
                   transaction.Execute("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema_));
  // Asked first: CREATE SCHEMA IF NOT EXISTS wants the right to create even when it exists.
  if (exists.empty()) RETURN_IF_ERROR(transaction.Run(In(schema_, "CREATE SCHEMA {schema}")));
  RETURN_IF_ERROR(transaction.Run(In(schema_, kCreateTable)));
  return transaction.Commit();
}

absl::Status Migrator::Patiently(const std::string& what,
                                 const std::function<absl::Status()>& work) {
  for (int tries = 1;; ++tries) {
    absl::Status done = work();
    if (done.ok()) return done;
    const bool locked = SqlState(done) == kLockNotAvailable;
    if (!locked || tries >= wait_.tries) {
      return absl::Status(
          done.code(), fmt::format("{} of schema {} failed: {}{}", what, schema_, MessageOf(done),
                                   locked ? "; look for long transactions in pg_stat_activity and "
                                            "try again"
                                          : ""));
    }
    log::Warning("a migration waits for others to let go of a lock; it is tried again",
                 {{"schema", schema_}, {"migration", what}, {"error", done}});
    std::this_thread::sleep_for(wait_.pause);
  }
}

absl::Status Migrator::Run(const Migration& migration, bool up) {
  return Patiently(
      fmt::format("migration {}/{:03}_{} ({})", set_.name, migration.version, migration.name,
                  up ? "up" : "down"),
      [&] { return migration.concurrent() ? TryConcurrently(migration, up) : Try(migration, up); });
}

absl::Status Migrator::Record(Executor& executor, const Migration& migration, bool up) {
  if (!up) return executor.Run(In(schema_, kForget), set_.name, migration.version);
  return executor.Run(In(schema_, kRecord), set_.name, migration.version, migration.name,
                      migration.incompatible(), migration.up);
}

absl::Status Migrator::Try(const Migration& migration, bool up) {
  ASSIGN_OR_RETURN(Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(Lock(transaction, kLock, schema_));
  ASSIGN_OR_RETURN(const Result done,
                   transaction.Execute(In(schema_, kIsApplied), set_.name, migration.version));
  if (done.empty() != up) return transaction.Commit();  // another migrator was faster
  RETURN_IF_ERROR(transaction.Run(In(schema_, kSearchPath)));
  RETURN_IF_ERROR(transaction.Run(fmt::format(
      "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {}", wait_.at_most.count())));
  RETURN_IF_ERROR(transaction.Run(up ? migration.up : migration.down));
  RETURN_IF_ERROR(Record(transaction, migration, up));
  return transaction.Commit();
}

absl::Status Migrator::TryConcurrently(const Migration& migration, bool up) {
  RETURN_IF_ERROR(Lock(connection_, kSessionLock, schema_));
  const auto work = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Result done,
                     connection_.Execute(In(schema_, kIsApplied), set_.name, migration.version));
    if (done.empty() != up) return absl::OkStatus();
    RETURN_IF_ERROR(connection_.Run(In(schema_, kSessionPath)));
    RETURN_IF_ERROR(connection_.Run("SET statement_timeout = 0"));
    RETURN_IF_ERROR(connection_.Run(migration.down));
    if (up) RETURN_IF_ERROR(connection_.Run(migration.up));
    return Record(connection_, migration, up);
  };
  absl::Status worked = work();
  worked.Update(connection_.Run(kUsualPath));
  worked.Update(connection_.Run(kSessionUnlock, schema_));
  return worked;
}

absl::StatusOr<std::vector<int>> Migrator::Up() {
  ASSIGN_OR_RETURN(const std::vector<State> states, Status());
  RETURN_IF_ERROR(Patiently("the first migration", [&] { return Prepare(); }));
  std::vector<int> applied;
  for (const State& state : states) {
    if (state.applied) continue;
    RETURN_IF_ERROR(Run(state.migration, /*up=*/true));
    applied.push_back(state.migration.version);
  }
  return applied;
}

absl::StatusOr<std::vector<int>> Migrator::Down(int version) {
  ASSIGN_OR_RETURN(const std::vector<State> states, Status());
  std::vector<int> undone;
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    if (!state->applied || state->migration.version <= version) continue;
    RETURN_IF_ERROR(Run(state->migration, /*up=*/false));
    undone.push_back(state->migration.version);
  }
  return undone;
}

absl::Status CheckSchemaVersion(Connection& connection, const std::string& schema,
                                const MigrationSet& set, std::string_view migrate) {
  const auto known = static_cast<int64_t>(set.steps.size());
  const auto version = connection.Execute(In(schema, kVersion), set.name);
  const std::string sqlstate = SqlState(version.status());
  if (sqlstate == kUndefinedTable || sqlstate == kUndefinedSchema) {
    return FailedPrecondition("the schema '{}' is not there in database '{}'; run: {}", schema,
                              connection.database(), migrate);
  }
  if (!version.ok()) return version.status();
  const int64_t at = (*version)[0].Int("at");
  const int64_t needed = (*version)[0].Int("needed");
  if (at == 0 && known > 0) {
    return FailedPrecondition("the schema '{}' of database '{}' does not have the set {}; run: {}",
                              schema, connection.database(), set.name, migrate);
  }
  if (at < known) {
    return FailedPrecondition(
        "the schema '{}' is at migration {} and this program needs {}; run: {}", schema, at, known,
        migrate);
  }
  if (needed > known) {
    return FailedPrecondition(
        "the schema '{}' is at migration {}, and since migration {} this program, which knows {}, "
        "can't work with it; use the version that made it, or a newer one",
        schema, at, needed, known);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::postgres
