#include "sql/migrations.h"

#include "idempotency_sql.h"
#include "outbox_sql.h"
#include "saga_sql.h"
#include "state_sql.h"

namespace lockstep::sql {
namespace {

template <typename Files>
postgres::MigrationSet Parse(const char* set, const Files& embedded) {
  std::vector<postgres::MigrationFile> files;
  for (const auto& file : embedded) files.push_back({file.name, file.text});
  // The files are part of the binary: a mistake in them is ours, and shows in the first test as the
  // exception of `value`.
  return {set, postgres::ParseMigrations(files).value()};
}

}  // namespace

postgres::MigrationSet OutboxMigrations() { return Parse("outbox", outbox::Files()); }
postgres::MigrationSet StateMigrations() { return Parse("state", state::Files()); }
postgres::MigrationSet IdempotencyMigrations() {
  return Parse("idempotency", idempotency::Files());
}
postgres::MigrationSet SagaMigrations() { return Parse("saga", saga::Files()); }

}  // namespace lockstep::sql
