#include "postgres/migrator.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
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

struct Name {
  int version = 0;
  std::string stem;
  bool up = false;
};

absl::StatusOr<Name> ParseName(std::string_view file) {
  Name name;
  const size_t slash = file.rfind('/');
  std::string_view base = slash == std::string_view::npos ? file : file.substr(slash + 1);
  for (const auto& [ending, up] : {std::pair{std::string_view(".up.sql"), true},
                                   std::pair{std::string_view(".down.sql"), false}}) {
    if (!base.ends_with(ending)) continue;
    base.remove_suffix(ending.size());
    name.up = up;
    const auto [end, error] = std::from_chars(base.data(), base.data() + base.size(), name.version);
    if (error != std::errc() || name.version <= 0 || *end != '_') break;
    name.stem = base.substr(end - base.data() + 1);
    return name;
  }
  return InvalidArgument("{} is not named like a migration (NNN_name.up.sql, NNN_name.down.sql)",
                         file);
}

}  // namespace

absl::StatusOr<std::vector<Migration>> ParseMigrations(const std::vector<MigrationFile>& files) {
  std::map<int, Migration> steps;
  for (const MigrationFile& file : files) {
    ASSIGN_OR_RETURN(const Name name, ParseName(file.name));
    Migration& step = steps[name.version];
    if (!step.name.empty() && step.name != name.stem) {
      return InvalidArgument("migration {} has two names: {} and {}", name.version, step.name,
                             name.stem);
    }
    step.version = name.version;
    step.name = name.stem;
    (name.up ? step.up : step.down) = file.text;
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
  std::map<int, std::string> applied;
  ASSIGN_OR_RETURN(const Result table,
                   connection_.Execute(kHasTable, In(schema_, "{schema}.schema_migrations")));
  if (table[0].Bool("found")) {
    ASSIGN_OR_RETURN(const Result rows, connection_.Execute(In(schema_, kApplied)));
    for (const Row row : rows) {
      const int version = static_cast<int>(row.Int("version"));
      applied[version] = row.Text("applied_at");
      if (version > static_cast<int>(migrations_.size())) {
        return FailedPrecondition(
            "schema {} is at migration {}, which this version of Lockstep does not know; use the "
            "version that made it, or a newer one",
            schema_, version);
      }
      ASSIGN_OR_RETURN(const Result sum,
                       connection_.Execute("SELECT md5($1) AS md5", migrations_[version - 1].up));
      if (sum[0].Text("md5") != row.Text("md5")) {
        return FailedPrecondition(
            "migration {} of schema {} was changed after it was applied; restore its text and add "
            "a new migration instead",
            version, schema_);
      }
    }
  }
  std::vector<State> states;
  for (const Migration& migration : migrations_) {
    const auto found = applied.find(migration.version);
    states.push_back(
        {migration, found != applied.end(), found == applied.end() ? "" : found->second});
  }
  return states;
}

absl::Status Migrator::Prepare() {
  ASSIGN_OR_RETURN(Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(transaction.Execute(kLock, schema_).status());
  ASSIGN_OR_RETURN(const Result exists,
                   transaction.Execute("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema_));
  // Asked first: CREATE SCHEMA IF NOT EXISTS wants the right to create even when it exists.
  if (exists.empty())
    RETURN_IF_ERROR(transaction.Execute(In(schema_, "CREATE SCHEMA {schema}")).status());
  RETURN_IF_ERROR(transaction.Execute(In(schema_, kCreateTable)).status());
  return transaction.Commit();
}

absl::Status Migrator::Run(const Migration& migration, bool up) {
  ASSIGN_OR_RETURN(Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(transaction.Execute(kLock, schema_).status());
  ASSIGN_OR_RETURN(const Result done,
                   transaction.Execute(In(schema_, kIsApplied), migration.version));
  if (done.empty() != up) return transaction.Commit();  // another migrator was faster
  RETURN_IF_ERROR(transaction.Execute(In(schema_, kSearchPath)).status());
  const absl::Status ran = transaction.Execute(up ? migration.up : migration.down).status();
  if (!ran.ok()) {
    return absl::Status(ran.code(), fmt::format("migration {:03}_{} ({}) of schema {} failed: {}",
                                                migration.version, migration.name,
                                                up ? "up" : "down", schema_, MessageOf(ran)));
  }
  const auto noted = up ? transaction.Execute(In(schema_, kRecord), migration.version,
                                              migration.name, migration.up)
                        : transaction.Execute(In(schema_, kForget), migration.version);
  RETURN_IF_ERROR(noted.status());
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
