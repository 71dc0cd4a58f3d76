#include "postgres/migrator.h"

#include <fmt/format.h>

#include <map>
#include <regex>
#include <utility>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

namespace lockstep::postgres {
namespace {

// hashtextextended makes one lock per schema out of its name.
constexpr char kLock[] =
    "SELECT pg_advisory_xact_lock(hashtextextended('lockstep.migrate.' || $1, 0))";
constexpr char kCreateTable[] = R"sql(
CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
  version int PRIMARY KEY,
  name text NOT NULL,
  md5 text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()))sql";
constexpr char kHasTable[] = "SELECT to_regclass($1) IS NOT NULL AS found";
constexpr char kApplied[] = "SELECT version, md5, applied_at FROM {schema}.schema_migrations";
constexpr char kIsApplied[] = "SELECT 1 FROM {schema}.schema_migrations WHERE version = $1";
constexpr char kSearchPath[] = "SET LOCAL search_path = {schema}, pg_catalog";
constexpr char kRecord[] =
    "INSERT INTO {schema}.schema_migrations (version, name, md5) VALUES ($1, $2, md5($3))";
constexpr char kForget[] = "DELETE FROM {schema}.schema_migrations WHERE version = $1";

std::string In(const std::string& schema, std::string_view sql) {
  return FillNames(sql, {{"schema", QuoteIdentifier(schema)}});
}

}  // namespace

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

Migrator::Migrator(Connection& connection, std::string schema, std::vector<Migration> migrations)
    : connection_(connection), schema_(std::move(schema)), migrations_(std::move(migrations)) {}

absl::StatusOr<std::vector<Migrator::State>> Migrator::Status() {
  std::vector<State> states;
  for (const Migration& migration : migrations_) states.push_back({.migration = migration});
  ASSIGN_OR_RETURN(const Result table,
                   connection_.Execute(kHasTable, In(schema_, "{schema}.schema_migrations")));
  if (!table[0].Bool("found")) return states;
  ASSIGN_OR_RETURN(const Result rows, connection_.Execute(In(schema_, kApplied)));
  for (const Row row : rows) {
    const size_t version = row.Int("version");
    if (version > states.size()) {
      return FailedPrecondition(
          "schema {} is at migration {}, which this version of Lockstep does not know; use the "
          "version that made it, or a newer one",
          schema_, version);
    }
    State& state = states[version - 1];
    state.applied = true;
    state.applied_at = row.Text("applied_at");
    ASSIGN_OR_RETURN(const Result sum,
                     connection_.Execute("SELECT md5($1) AS md5", state.migration.up));
    if (sum[0].Text("md5") != row.Text("md5")) {
      return FailedPrecondition(
          "migration {} of schema {} was changed after it was applied; restore its text and add "
          "a new migration instead",
          version, schema_);
    }
  }
  return states;
}

absl::Status Migrator::Prepare() {
  ASSIGN_OR_RETURN(Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(transaction.Run(kLock, schema_));
  ASSIGN_OR_RETURN(const Result exists,
                   transaction.Execute("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema_));
  // Asked first: CREATE SCHEMA IF NOT EXISTS wants the right to create even when it exists.
  if (exists.empty()) RETURN_IF_ERROR(transaction.Run(In(schema_, "CREATE SCHEMA {schema}")));
  RETURN_IF_ERROR(transaction.Run(In(schema_, kCreateTable)));
  return transaction.Commit();
}

absl::Status Migrator::Run(const Migration& migration, bool up) {
  ASSIGN_OR_RETURN(Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(transaction.Run(kLock, schema_));
  ASSIGN_OR_RETURN(const Result done,
                   transaction.Execute(In(schema_, kIsApplied), migration.version));
  if (done.empty() != up) return transaction.Commit();  // another migrator was faster
  RETURN_IF_ERROR(transaction.Run(In(schema_, kSearchPath)));
  const absl::Status ran = transaction.Run(up ? migration.up : migration.down);
  if (!ran.ok()) {
    return absl::Status(ran.code(), fmt::format("migration {:03}_{} ({}) of schema {} failed: {}",
                                                migration.version, migration.name,
                                                up ? "up" : "down", schema_, MessageOf(ran)));
  }
  RETURN_IF_ERROR(
      up ? transaction.Run(In(schema_, kRecord), migration.version, migration.name, migration.up)
         : transaction.Run(In(schema_, kForget), migration.version));
  return transaction.Commit();
}

absl::StatusOr<std::vector<int>> Migrator::Up() {
  ASSIGN_OR_RETURN(const std::vector<State> states, Status());
  RETURN_IF_ERROR(Prepare());
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

}  // namespace lockstep::postgres
