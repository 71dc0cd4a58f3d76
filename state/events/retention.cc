#include "state/events/retention.h"

#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::state {
namespace {

// Rows of {table} whose {time} lies so far back. The BRIN index of the inbox finds the pages; rows
// of another group on them are left alone.
constexpr std::string_view kOld = R"(
DELETE FROM {state}.{table}
 WHERE ctid = ANY (ARRAY (
   SELECT ctid FROM {state}.{table}
    WHERE {time} < least(now(), $4::timestamptz) - make_interval(secs => $2 / 1000.0){more}
      AND generation IN (SELECT generation FROM {state}.slots WHERE group_name = $1)
    LIMIT $3)))";

// What was read at the source before a delete may be published after it, though not by a day; and
// a dead letter can be replayed however old it is.
constexpr std::string_view kNobodyLate = R"( - interval '1 day'
      AND deleted_at < coalesce((SELECT min(publish_time) FROM {state}.dead_letters
                                  WHERE group_name = $1 AND state IN ('dead', 'quarantined')),
                                'infinity') - interval '1 day')";

constexpr std::string_view kResolved = R"(
DELETE FROM {state}.dead_letters
 WHERE id = ANY (ARRAY (
   SELECT id FROM {state}.dead_letters
    WHERE group_name = $1 AND resolved_at < now() - make_interval(secs => $2 / 1000.0)
    LIMIT $3)))";

constexpr std::string_view kAudits =
    "SELECT {state}.clean_audit(make_interval(secs => $1 / 1000.0), $2)";

constexpr std::string_view kInstances = R"(
DELETE FROM {state}.instances
 WHERE group_name = $1 AND seen_at < least(now(), $2::timestamptz) - interval '1 day')";

// The one that came furthest tells where the group stands.
constexpr std::string_view kOffsets = R"(
DELETE FROM {state}.offsets o
 WHERE o.group_name = $1 AND o.updated_at < least(now(), $2::timestamptz) - interval '1 day'
   AND NOT EXISTS (SELECT 1 FROM {state}.instances i
                    WHERE i.group_name = o.group_name AND i.instance = o.instance
                      AND o.lane < i.lanes)
   AND EXISTS (SELECT 1 FROM {state}.offsets f
                WHERE f.group_name = o.group_name AND f.publish_time > o.publish_time))";

constexpr std::string_view kRows = R"(
DELETE FROM {state}.{table}
 WHERE ctid = ANY (ARRAY (
   SELECT t.ctid FROM {state}.{table} t
    WHERE t.generation = ANY (ARRAY (SELECT generation FROM {state}.retired_generations
                                      WHERE group_name = $1)){more}
    LIMIT $2)))";

// Where handlers mind replays, what was handled is remembered like what the living generation sees.
constexpr std::string_view kUnlessMinded = R"(
      AND (t.received_at < least(now(), $4::timestamptz) - make_interval(secs => $3 / 1000.0)
           OR NOT EXISTS (SELECT FROM {state}.retired_generations r
                            JOIN {state}.consumer_groups g USING (group_name)
                           WHERE r.generation = t.generation AND r.served AND g.minds_replays)))";

// What still waited was never handled: it must not seem so.
constexpr std::string_view kParked = R"(
WITH gone AS (
  DELETE FROM {state}.parked
   WHERE ctid = ANY (ARRAY (
     SELECT t.ctid FROM {state}.parked t
      WHERE t.generation = ANY (ARRAY (SELECT generation FROM {state}.retired_generations
                                        WHERE group_name = $1))
      LIMIT $2))
  RETURNING generation, event_id),
unseen AS (
  DELETE FROM {state}.inbox i USING gone
   WHERE i.generation = gone.generation AND i.event_id = gone.event_id)
SELECT count(*) FROM gone)";

constexpr std::string_view kNewestRetired = R"(
SELECT max(generation) AS generation FROM {state}.retired_generations WHERE group_name = $1)";

constexpr std::string_view kForgetRetired = R"(
DELETE FROM {state}.retired_generations r
 WHERE r.group_name = $1 AND r.generation <= $2
   AND NOT EXISTS (SELECT FROM {state}.inbox i WHERE i.generation = r.generation))";

constexpr std::string_view kAlive = R"(
SELECT instance FROM {state}.instances
 WHERE group_name = $1 AND seen_at > now() - interval '1 minute' ORDER BY instance)";

constexpr std::string_view kAuditRemoval = R"(
INSERT INTO {state}.audit (group_name, action, operator, reason, old)
SELECT $1, 'group.removed', $2, $3,
       jsonb_build_object('epoch', epoch, 'generation', generation, 'subscription', subscription)
  FROM {state}.active_slots WHERE group_name = $1)";

// In this order; slots go with their group.
constexpr std::string_view kRemovals[] = {
    R"(INSERT INTO {state}.retired_generations (generation, group_name)
       SELECT generation, group_name FROM {state}.slots WHERE group_name = $1
       ON CONFLICT DO NOTHING)",
    "DELETE FROM {state}.dead_letters WHERE group_name = $1",
    "DELETE FROM {state}.offsets WHERE group_name = $1",
    "DELETE FROM {state}.instances WHERE group_name = $1",
    "DELETE FROM {state}.checkpoints WHERE group_name = $1",
    "DELETE FROM {state}.verifications WHERE group_name = $1",
    "DELETE FROM {state}.projection_fields WHERE consumer_group = $1",
    "DELETE FROM {state}.consumer_groups WHERE group_name = $1"};

constexpr std::string_view kInboxBytes = R"(
SELECT pg_total_relation_size(c.oid)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = $1 AND c.relname = 'inbox')";

}  // namespace

absl::StatusOr<std::vector<std::string>> Retention::Alive(postgres::Executor& database) const {
  ASSIGN_OR_RETURN(const auto rows, database.Execute(schema_.Sql(kAlive), group_));
  std::vector<std::string> names;
  for (const postgres::Row row : rows) names.push_back(row.String("instance"));
  return names;
}

absl::Status Retention::RemoveGroup(postgres::Transaction& transaction, const std::string& by,
                                    const std::string& reason) const {
  RETURN_IF_ERROR(transaction.Run(schema_.Sql(kAuditRemoval), group_, by, reason));
  for (const std::string_view sql : kRemovals) {
    RETURN_IF_ERROR(transaction.Run(schema_.Sql(sql), group_));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Retention::ForgetEvents(postgres::Connection& connection, WallTime now,
                                                Millis age, int limit) const {
  const auto sql =
      postgres::FillNames(kOld, {{"table", "inbox"}, {"time", "received_at"}, {"more", ""}});
  return connection.Affected(schema_.Sql(sql), group_, age, limit, now);
}

absl::StatusOr<int64_t> Retention::ForgetTombstones(postgres::Connection& connection, WallTime now,
                                                    Millis age, int limit) const {
  const auto sql = postgres::FillNames(
      kOld, {{"table", "row_versions"}, {"time", "deleted_at"}, {"more", kNobodyLate}});
  return connection.Affected(schema_.Sql(sql), group_, age, limit, now);
}

absl::StatusOr<int64_t> Retention::ForgetResolved(postgres::Connection& connection, Millis age,
                                                  int limit) const {
  return connection.Affected(schema_.Sql(kResolved), group_, age, limit);
}

absl::Status Retention::ForgetGone(postgres::Connection& connection, WallTime now) const {
  RETURN_IF_ERROR(connection.Run(schema_.Sql(kInstances), group_, now));
  return connection.Run(schema_.Sql(kOffsets), group_, now);
}

absl::StatusOr<std::optional<int>> Retention::NewestRetired(
    postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kNewestRetired), group_));
  return rows[0].OptionalInt("generation");
}

absl::StatusOr<int64_t> Retention::ForgetRows(postgres::Connection& connection, WallTime now,
                                              Millis age, int limit) const {
  ASSIGN_OR_RETURN(int64_t total, connection.Number(schema_.Sql(kParked), group_, limit));
  if (total >= limit) return total;
  const std::string inbox =
      schema_.Sql(postgres::FillNames(kRows, {{"table", "inbox"}, {"more", kUnlessMinded}}));
  ASSIGN_OR_RETURN(const int64_t seen, connection.Affected(inbox, group_, limit - total, age, now));
  total += seen;
  for (const char* const table : {"key_state", "row_versions"}) {
    if (total >= limit) break;
    const std::string sql =
        schema_.Sql(postgres::FillNames(kRows, {{"table", table}, {"more", ""}}));
    ASSIGN_OR_RETURN(const int64_t gone, connection.Affected(sql, group_, limit - total));
    total += gone;
  }
  return total;
}

absl::Status Retention::ForgetRetired(postgres::Connection& connection, int newest) const {
  return connection.Run(schema_.Sql(kForgetRetired), group_, newest);
}

absl::StatusOr<int64_t> ForgetAudits(postgres::Connection& connection, const Schema& schema,
                                     Millis age, int limit) {
  return connection.Number(schema.Sql(kAudits), age, limit);
}

absl::StatusOr<int64_t> InboxBytes(postgres::Connection& connection, const Schema& schema) {
  return connection.Number(kInboxBytes, schema.name());
}

}  // namespace lockstep::state
