#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::postgres {

class Connection;

// One numbered step: the files NNN_name.up.sql and NNN_name.down.sql.
struct Migration {
  int version = 0;
  std::string name;
  std::string up;
  std::string down;
};

struct MigrationFile {
  std::string_view name;  // "001_inbox.up.sql"
  std::string_view text;
};

// Pairs the files up. Fails on a gap, a double, or a step without its way down.
absl::StatusOr<std::vector<Migration>> ParseMigrations(const std::vector<MigrationFile>& files);

// Brings one schema to a version. What has been applied is recorded, with a checksum, in the
// schema's own table `schema_migrations`, so two services in one database keep apart. The steps
// run with the schema alone on the search path: their tables are named without it. Each
// step is a transaction, under an advisory lock: any number of migrators may start at once.
class Migrator {
 public:
  Migrator(Connection& connection, std::string schema, std::vector<Migration> migrations);

  struct State {
    Migration migration;
    bool applied = false;
    std::string applied_at;
  };
  // What would be done: reads only.
  absl::StatusOr<std::vector<State>> Status();

  // Applies what is missing; answers the versions applied, in order. A step whose text changed
  // after it was applied is an error that names it.
  absl::StatusOr<std::vector<int>> Up();
  // Takes back every step above `version` (0 = all).
  absl::StatusOr<std::vector<int>> Down(int version);

 private:
  absl::Status Prepare();
  absl::Status Run(const Migration& migration, bool up);

  Connection& connection_;
  std::string schema_;
  std::vector<Migration> migrations_;
};

}  // namespace lockstep::postgres
