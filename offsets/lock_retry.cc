#include "offsets/lock_retry.h"

#include <fmt/format.h>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::offsets {
namespace {

constexpr std::string_view kLockNotAvailable = "55P03";

constexpr std::string_view kHolders = R"(
WITH key AS (SELECT hashtextextended('lockstep.epoch.' || $2 || '.' || $1, 0) AS k)
SELECT DISTINCT a.pid, a.application_name, coalesce(a.state, 'unknown') AS state,
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::bigint, 0) AS seconds
  FROM pg_locks l
  JOIN pg_stat_activity a USING (pid), key
 WHERE l.granted AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND ((l.locktype = 'advisory' AND l.objsubid = 1
         AND l.classid::bigint = (key.k >> 32) & 4294967295
         AND l.objid::bigint = key.k & 4294967295)
        OR (l.locktype = 'relation'
            AND l.relation = ANY (SELECT to_regclass(t) FROM unnest($3::text[]) AS t)))
 ORDER BY a.pid)";

absl::StatusOr<std::vector<std::string>> Holders(postgres::Connection& connection,
                                                 const state::Schema& schema,
                                                 const ConsumerGroup& group,
                                                 const std::vector<std::string>& tables) {
  postgres::Array names;
  for (const std::string& table : tables) {
    ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
    names.Add(name.Quoted());
  }
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   connection.Execute(kHolders, group, schema.name(), names));
  std::vector<std::string> holders;
  for (const postgres::Row row : rows) {
    const std::string_view name = row.Text("application_name");
    holders.push_back(fmt::format("{} (pid {}, {}, {} s in its transaction)",
                                  name.empty() ? "a session" : name, row.Int("pid"),
                                  row.Text("state"), row.Int("seconds")));
  }
  return holders;
}

absl::Status Try(postgres::Connection& connection, Millis patience,
                 const std::function<absl::Status(postgres::Transaction&)>& change) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  RETURN_IF_ERROR(transaction.Run(fmt::format("SET LOCAL lock_timeout = {}", patience.count())));
  RETURN_IF_ERROR(change(transaction));
  return transaction.Commit();
}

}  // namespace

absl::Status WithLockRetry(postgres::Connection& connection, const state::Schema& schema,
                           const ConsumerGroup& group, const LockWait& wait,
                           const std::function<absl::Status(postgres::Transaction&)>& change) {
  const SteadyTime give_up = Clock::System().Steady() + wait.give_up;
  while (true) {
    absl::Status done = Try(connection, wait.each, change);
    if (postgres::SqlState(done) != kLockNotAvailable) return done;
    ASSIGN_OR_RETURN(auto holders, Holders(connection, schema, group, wait.tables));
    if (wait.on_wait) wait.on_wait(holders);
    if (Clock::System().Steady() < give_up) continue;
    if (holders.empty()) holders.emplace_back("somebody who has just gone; try again");
    return absl::DeadlineExceededError(
        fmt::format("nothing was changed: the lock of group '{}' is held by {}", group.value(),
                    fmt::join(holders, "; ")));
  }
}

}  // namespace lockstep::offsets
