#include "sql/migrations.h"

#include "outbox_sql.h"
#include "state_sql.h"

namespace lockstep::sql {
namespace {

template <typename Files>
std::vector<postgres::Migration> Parse(const Files& embedded) {
  std::vector<postgres::MigrationFile> files;
  for (const auto& file : embedded) files.push_back({file.name, file.text});
  // The files are part of the binary: a mistake in them is ours, and shows in the first test as the
  // exception of `value`.
  return postgres::ParseMigrations(files).value();
}

}  // namespace

std::vector<postgres::Migration> OutboxMigrations() { return Parse(outbox::Files()); }
std::vector<postgres::Migration> StateMigrations() { return Parse(state::Files()); }

}  // namespace lockstep::sql
