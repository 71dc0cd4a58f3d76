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
                                      WHERE group_name = $1))
    LIMIT $2)))";

constexpr std::string_view kNewestRetired = R"(
SELECT max(generation) AS generation FROM {state}.retired_generations WHERE group_name = $1)";

constexpr std::string_view kForgetRetired = R"(
DELETE FROM {state}.retired_generations WHERE group_name = $1 AND generation <= $2)";

}  // namespace

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

absl::StatusOr<int64_t> Retention::ForgetRows(postgres::Connection& connection, int limit) const {
  int64_t total = 0;
  for (const char* const table : {"inbox", "parked", "key_state", "row_versions"}) {
    const std::string sql = schema_.Sql(postgres::FillNames(kRows, {{"table", table}}));
    ASSIGN_OR_RETURN(const int64_t gone, connection.Affected(sql, group_, limit - total));
    total += gone;
    if (total >= limit) break;
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

}  // namespace lockstep::state
