#include "postgres/table_locks.h"

#include <fmt/format.h>

#include "platform/status.h"

namespace lockstep::postgres {
namespace {

// A lock that is waited for stops those behind it like one that is held. What was granted first is
// told: it is what all others wait for.
constexpr Statement kWhoLocks{"who_locks", R"sql(
WITH written AS MATERIALIZED (
  SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND (n.nspname = $1 OR n.nspname || '.' || c.relname = ANY ($2::text[]))
),
touched AS MATERIALIZED (
  SELECT oid FROM written
  UNION SELECT confrelid FROM pg_catalog.pg_constraint WHERE contype = 'f' AND conrelid IN (SELECT oid FROM written)
  UNION SELECT conrelid FROM pg_catalog.pg_constraint WHERE contype = 'f' AND confrelid IN (SELECT oid FROM written)
)
SELECT coalesce(l.pid, 0) AS pid, l.relation::regclass::text AS relation, l.mode, l.granted, a.usename,
       a.application_name, substring(a.query FROM '^\s*([A-Za-z_]+(?:\s+[A-Za-z_]+){0,2})') AS words,
       coalesce((SELECT min(b) FROM unnest(pg_catalog.pg_blocking_pids(l.pid)) b), 0) AS behind
FROM pg_catalog.pg_locks l
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation'
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND (l.relation IN (SELECT oid FROM touched)
       OR pg_catalog.pg_partition_root(l.relation) IN (SELECT oid FROM touched))
ORDER BY l.granted DESC, a.xact_start
LIMIT 1)sql"};

}  // namespace

absl::StatusOr<std::string> WhoLocks(Executor& executor, const std::string& schema,
                                     const std::vector<std::string>& tables) {
  ASSIGN_OR_RETURN(const Result rows, executor.Execute(kWhoLocks, schema, Array(tables)));
  if (rows.empty()) return std::string();
  const Row row = rows[0];
  const auto part = [&](const char* before, const char* column) {
    return row.Text(column).empty() ? "" : fmt::format("{}{}", before, row.Text(column));
  };
  std::string who =
      row.Int("pid") == 0
          ? "a prepared transaction"
          : fmt::format("pid {} (role {}{}{})", row.Int("pid"), row.Text("usename"),
                        part(", application ", "application_name"), part(", statement ", "words"));
  if (row.Bool("granted")) {
    return fmt::format("{} has {} on {}", who, row.Text("mode"), row.Text("relation"));
  }
  return fmt::format("{} wants {} on {} and waits itself, for pid {}", who, row.Text("mode"),
                     row.Text("relation"), row.Int("behind"));
}

}  // namespace lockstep::postgres
