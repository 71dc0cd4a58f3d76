#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"

namespace lockstep::postgres {

class Connection;
class Executor;

// One numbered step: the files NNN_name.up.sql and NNN_name.down.sql.
struct Migration {
  int version = 0;
  std::string name;
  std::string up;
  std::string down;

  // What `up` begins with: `-- incompatible` or `-- concurrently`.
  bool incompatible() const;  // programs that don't know the step can't work with it
  bool concurrent()
      const;  // one statement that can't be in a transaction: CREATE INDEX CONCURRENTLY
};

struct MigrationFile {
  std::string_view name;  // "001_inbox.up.sql"
  std::string_view text;
};

// Pairs the files up. Fails on a gap, a double, or a step without its way down.
absl::StatusOr<std::vector<Migration>> ParseMigrations(const std::vector<MigrationFile>& files);

// The steps that belong together, under the name that `lockstepctl migrate --set` knows. Several
// sets may share a schema; each has its own numbers.
struct MigrationSet {
  std::string name;
  std::vector<Migration> steps;
};

// How a migration waits for what others hold. Whoever waits for a table's strongest lock has
// everybody who comes later wait behind him: so not for long, and others go before the next try.
struct LockWait {
  Millis at_most{2'000};
  Millis pause{3'000};
  int tries = 100;
};

// Brings one set in one schema to a version. What has been applied is recorded, by set and with a
// checksum, in the schema's own table `schema_migrations`, so two services in one database keep
// apart. The steps
// run with the schema alone on the search path: their tables are named without it. Each
// step is a transaction, under an advisory lock: any number of migrators may start at once. A step
// whose first line is `-- concurrently` is run outside of one, after its way down, which removes
// what a try that failed has left (`DROP INDEX CONCURRENTLY IF EXISTS …`). Steps take as long as
// they need: no statement timeout.
class Migrator {
 public:
  Migrator(Connection& connection, std::string schema, MigrationSet set, LockWait wait = {});

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
  // Again and again while others hold a lock.
  absl::Status Patiently(const std::string& what, const std::function<absl::Status()>& work);
  absl::Status Prepare();
  absl::Status Run(const Migration& migration, bool up);
  absl::Status Try(const Migration& migration, bool up);
  absl::Status TryConcurrently(const Migration& migration, bool up);
  absl::Status Record(Executor& executor, const Migration& migration, bool up);

  Connection& connection_;
  std::string schema_;
  MigrationSet set_;
  LockWait wait_;
};

// For a program that knows the steps of `known`: OK if the schema has them all, and no incompatible
// one of that set beyond them. So a schema is brought up first, and programs of both versions work
// with it until the old ones are gone. `migrate` is the command that brings it up.
absl::Status CheckSchemaVersion(Connection& connection, const std::string& schema,
                                const MigrationSet& known, std::string_view migrate);

}  // namespace lockstep::postgres
