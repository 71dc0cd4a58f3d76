#include "sql/migrations.h"

#include <stdexcept>
#include <string>

#include "outbox_sql.h"
#include "platform/status.h"
#include "state_sql.h"

namespace lockstep::sql {
namespace {

template <typename Files>
std::vector<postgres::Migration> Parse(const Files& embedded) {
  std::vector<postgres::MigrationFile> files;
  for (const auto& file : embedded) files.push_back({file.name, file.text});
  auto migrations = postgres::ParseMigrations(files);
  // The files are part of the binary: a mistake in them is ours and shows in the first test.
  if (!migrations.ok()) throw std::logic_error(std::string(MessageOf(migrations.status())));
  return *std::move(migrations);
}

}  // namespace

std::vector<postgres::Migration> OutboxMigrations() { return Parse(outbox::Files()); }
std::vector<postgres::Migration> StateMigrations() { return Parse(state::Files()); }

}  // namespace lockstep::sql
