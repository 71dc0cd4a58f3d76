#include "state/schema.h"

#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "sql/migrations.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kMigrations = "SELECT count(*) FROM {state}.schema_migrations";

constexpr std::string_view kUndefinedTable = "42P01";
constexpr std::string_view kUndefinedSchema = "3F000";

}  // namespace

Schema::Schema(std::string name)
    : name_(std::move(name)), quoted_(postgres::QuoteIdentifier(name_)) {}

std::string Schema::Sql(std::string_view text) const {
  return postgres::FillNames(text, {{"state", quoted_}});
}

absl::Status Schema::Check(postgres::Connection& connection) const {
  const auto applied = connection.Number(Sql(kMigrations));
  const int64_t wanted = static_cast<int64_t>(sql::StateMigrations().size());
  if (!applied.ok()) {
    const std::string sqlstate = postgres::SqlState(applied.status());
    if (sqlstate != kUndefinedTable && sqlstate != kUndefinedSchema) return applied.status();
    return FailedPrecondition(
        "the state schema '{0}' is not there in database '{1}'; run: lockstepctl migrate up --set "
        "state --schema {0}",
        name_, connection.database());
  }
  if (*applied < wanted) {
    return FailedPrecondition(
        "the state schema '{0}' is at migration {1} and this program needs {2}; run: lockstepctl "
        "migrate up --set state --schema {0}",
        name_, *applied, wanted);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::state
