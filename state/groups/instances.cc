#include "state/groups/instances.h"

#include "platform/status.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kHeartbeat = R"(
INSERT INTO {state}.instances AS i
       (group_name, instance, epoch, lanes, handled, queued, publish_lag_ms, receive_lag_ms,
        commit_lag_ms, lag_ms, lag_basis, state, idle_lanes, heartbeat_at, snapshots_open,
        mapping, address, version, started_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
ON CONFLICT (group_name, instance) DO UPDATE
   SET epoch = EXCLUDED.epoch, lanes = EXCLUDED.lanes, seen_at = now(),
       handled = EXCLUDED.handled, queued = EXCLUDED.queued,
       publish_lag_ms = EXCLUDED.publish_lag_ms, receive_lag_ms = EXCLUDED.receive_lag_ms,
       commit_lag_ms = EXCLUDED.commit_lag_ms, lag_ms = EXCLUDED.lag_ms,
       lag_basis = EXCLUDED.lag_basis, state = EXCLUDED.state, idle_lanes = EXCLUDED.idle_lanes,
       heartbeat_at = EXCLUDED.heartbeat_at, snapshots_open = EXCLUDED.snapshots_open,
       mapping = EXCLUDED.mapping, address = EXCLUDED.address, version = EXCLUDED.version,
       started_at = EXCLUDED.started_at)";

constexpr std::string_view kLeave = R"(
DELETE FROM {state}.instances WHERE group_name = $1 AND instance = $2)";

constexpr std::string_view kWithOtherMapping = R"(
SELECT instance FROM {state}.instances
 WHERE group_name = $1 AND mapping <> $2 AND seen_at > now() - interval '1 minute'
 ORDER BY instance)";

constexpr std::string_view kForgetAll = "DELETE FROM {state}.instances WHERE group_name = $1";

}  // namespace

absl::Status Instances::Heartbeat(postgres::Connection& connection, const std::string& instance,
                                  const InstanceReport& report) const {
  return connection.Run(schema_.Sql(kHeartbeat), group_, instance, report.epoch, report.lanes,
                        report.handled, report.queued, report.publish_lag, report.receive_lag,
                        report.commit_lag, report.lag, report.lag_basis, report.state,
                        report.idle_lanes, report.heartbeat, report.snapshots_open, report.mapping,
                        report.address, report.version, report.started_at);
}

absl::Status Instances::Leave(postgres::Connection& connection, const std::string& instance) const {
  return connection.Run(schema_.Sql(kLeave), group_, instance);
}

absl::StatusOr<std::vector<std::string>> Instances::WithOtherMapping(
    postgres::Executor& database, const std::string& mapping) const {
  ASSIGN_OR_RETURN(const auto rows,
                   database.Execute(schema_.Sql(kWithOtherMapping), group_, mapping));
  std::vector<std::string> names;
  for (const postgres::Row row : rows) names.push_back(row.String("instance"));
  return names;
}

absl::Status Instances::ForgetAll(postgres::Transaction& transaction) const {
  return transaction.Run(schema_.Sql(kForgetAll), group_);
}

}  // namespace lockstep::state
