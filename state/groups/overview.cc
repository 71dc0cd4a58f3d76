#include "state/groups/overview.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kPositions = R"(
SELECT g.group_name, g.epoch, g.slot, g.generation, g.subscription, o.publish_time, o.message_id,
       o.lag_ms, g.seek_state, g.paused_at,
       (SELECT count(*) FROM {state}.instances i
         WHERE i.group_name = g.group_name
           AND i.seen_at BETWEEN now() - interval '15 seconds'
                             AND now() + interval '5 minutes') AS instances
  FROM {state}.active_slots g
  LEFT JOIN {state}.group_offsets o ON o.group_name = g.group_name
 WHERE $1 = '' OR g.group_name = $1
 ORDER BY g.group_name)";

constexpr std::string_view kLags = R"(
SELECT g.group_name, g.epoch, g.seek_state, g.paused_at, count(i.*) AS instances,
       coalesce(sum(i.handled), 0) AS handled, coalesce(sum(i.queued), 0) AS queued,
       max(i.publish_lag_ms) AS publish_lag_ms, max(i.receive_lag_ms) AS receive_lag_ms,
       max(i.commit_lag_ms) AS commit_lag_ms, max(i.lag_ms) AS lag_ms,
       (array_agg(i.state ORDER BY i.lag_ms DESC)
          FILTER (WHERE i.state NOT IN ('running', 'quiet', '')))[1] AS trouble,
       (array_agg(i.lag_basis ORDER BY i.lag_ms DESC)
          FILTER (WHERE i.lag_ms IS NOT NULL))[1] AS lag_basis,
       (extract(epoch FROM now() - o.publish_time) * 1000)::bigint AS behind_ms,
       o.lag_ms AS offset_lag_ms,
       (SELECT count(*) FROM {state}.key_state k
         WHERE k.generation = g.generation
           AND (k.parked > 0 OR k.blocked_version IS NOT NULL)) AS waiting_keys,
       (SELECT count(*) FROM {state}.dead_letters d
         WHERE d.group_name = g.group_name
           AND d.state IN ('dead', 'quarantined')) AS dead_letters
  FROM {state}.active_slots g
  LEFT JOIN {state}.group_offsets o ON o.group_name = g.group_name
  LEFT JOIN {state}.instances i
    ON i.group_name = g.group_name AND i.epoch = g.epoch
   AND i.seen_at BETWEEN now() - interval '15 seconds' AND now() + interval '5 minutes'
 GROUP BY g.group_name, g.epoch, g.seek_state, g.paused_at, g.generation, o.publish_time, o.lag_ms
 ORDER BY g.group_name)";

constexpr std::string_view kProgress = R"(
SELECT g.epoch, g.seek_state = 'done' AS seek_done, i.instance, i.handled, i.queued,
       i.state IN ('running', 'quiet', 'behind', 'no heartbeat') AS ready
  FROM {state}.consumer_groups g
  LEFT JOIN {state}.instances i
    ON i.group_name = g.group_name AND i.epoch = $2
   AND i.seen_at BETWEEN now() - interval '15 seconds' AND now() + interval '5 minutes'
   AND i.state <> 'halted'
 WHERE g.group_name = $1)";

// An instance that halts or waits has no message in hand, and gets none. What one that is not
// connected (yet) will be given first can't be told.
constexpr std::string_view kThrough = R"(
SELECT CASE WHEN bool_and(i.state NOT IN ('starting', 'no stream', '') AND i.snapshots_open)
            THEN min(i.seen_at - make_interval(secs => coalesce(i.lag_ms, 0) / 1000.0)) END
         AS through,
       greatest(max(i.heartbeat_at), (SELECT max(o.publish_time) FROM {state}.offsets o
                                       WHERE o.group_name = $1)) AS newest,
       now() AS now
  FROM {state}.consumer_groups g
  JOIN {state}.instances i
    ON i.group_name = g.group_name AND i.epoch = g.epoch
   AND i.seen_at BETWEEN now() - interval '15 seconds' AND now() + interval '5 minutes'
   AND i.state NOT IN ('halted', 'waiting', 'paused')
 WHERE g.group_name = $1 AND g.seek_state = 'done')";

constexpr std::string_view kInstances = R"(
SELECT group_name, instance, address, version, state, started_at, seen_at
  FROM {state}.instances
 WHERE ($1 = '' OR group_name = $1) AND seen_at > now() - interval '1 hour'
 ORDER BY started_at DESC, instance
 LIMIT $2)";

constexpr std::string_view kHistory = R"(
SELECT id, at, action, operator, role, reason, old, new,
       old ->> 'epoch' AS old_epoch, new ->> 'epoch' AS new_epoch
  FROM {state}.audit
 WHERE group_name = $1
 ORDER BY id DESC
 LIMIT $2)";

}  // namespace

absl::StatusOr<postgres::Result> Overview::Positions(postgres::Connection& connection,
                                                     const std::string& group) const {
  return connection.Execute(schema_.Sql(kPositions), group);
}

absl::StatusOr<postgres::Result> Overview::Lags(postgres::Connection& connection) const {
  return connection.Execute(schema_.Sql(kLags));
}

absl::StatusOr<postgres::Result> Overview::Progress(postgres::Connection& connection,
                                                    const std::string& group, int64_t epoch) const {
  return connection.Execute(schema_.Sql(kProgress), group, epoch);
}

absl::StatusOr<postgres::Result> Overview::Through(postgres::Connection& connection,
                                                   const std::string& group) const {
  return connection.Execute(schema_.Sql(kThrough), group);
}

absl::StatusOr<postgres::Result> Overview::Instances(postgres::Connection& connection,
                                                     const std::string& group, int limit) const {
  return connection.Execute(schema_.Sql(kInstances), group, limit);
}

absl::StatusOr<postgres::Result> Overview::History(postgres::Connection& connection,
                                                   const ConsumerGroup& group, int limit) const {
  return connection.Execute(schema_.Sql(kHistory), group, limit);
}

}  // namespace lockstep::state
