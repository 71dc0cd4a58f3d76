#include "state/events/retention.h"

#include <utility>

#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::state {
namespace {

// The BRIN index finds the pages; rows of another group on them are left alone.
constexpr std::string_view kEvents = R"(
DELETE FROM {state}.inbox
 WHERE ctid = ANY (ARRAY (
   SELECT ctid FROM {state}.inbox
    WHERE received_at < now() - make_interval(secs => $2 / 1000.0)
      AND generation IN (SELECT generation FROM {state}.slots WHERE group_name = $1)
    LIMIT $3)))";

constexpr std::string_view kTombstones = R"(
DELETE FROM {state}.row_versions
 WHERE ctid = ANY (ARRAY (
   SELECT ctid FROM {state}.row_versions
    WHERE deleted_at < now() - make_interval(secs => $2 / 1000.0)
      AND generation IN (SELECT generation FROM {state}.slots WHERE group_name = $1)
    LIMIT $3)))";

constexpr std::string_view kInstances = R"(
DELETE FROM {state}.instances
 WHERE group_name = $1 AND seen_at < now() - interval '1 day')";

// The one that came furthest tells where the group stands.
constexpr std::string_view kOffsets = R"(
DELETE FROM {state}.offsets o
 WHERE o.group_name = $1 AND o.updated_at < now() - interval '1 day'
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

Retention::Retention(const Schema& schema, ConsumerGroup group)
    : schema_(schema), group_(std::move(group)) {}

absl::StatusOr<int64_t> Retention::ForgetEvents(postgres::Connection& connection, Millis age,
                                                int limit) const {
  ASSIGN_OR_RETURN(const auto gone, connection.Execute(schema_.Sql(kEvents), group_.value(),
                                                       static_cast<int64_t>(age.count()), limit));
  return gone.affected_rows();
}

absl::StatusOr<int64_t> Retention::ForgetTombstones(postgres::Connection& connection, Millis age,
                                                    int limit) const {
  ASSIGN_OR_RETURN(const auto gone, connection.Execute(schema_.Sql(kTombstones), group_.value(),
                                                       static_cast<int64_t>(age.count()), limit));
  return gone.affected_rows();
}

absl::Status Retention::ForgetGone(postgres::Connection& connection) const {
  for (const std::string_view sql : {kInstances, kOffsets}) {
    RETURN_IF_ERROR(connection.Execute(schema_.Sql(sql), group_.value()).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int>> Retention::NewestRetired(
    postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const auto rows,
                   connection.Execute(schema_.Sql(kNewestRetired), group_.value()));
  if (rows[0].IsNull("generation")) return std::optional<int>();
  return std::optional(static_cast<int>(rows[0].Int("generation")));
}

absl::StatusOr<int64_t> Retention::ForgetRows(postgres::Connection& connection, int limit) const {
  int64_t total = 0;
  for (const char* const table : {"inbox", "parked", "key_state", "row_versions"}) {
    const std::string sql = schema_.Sql(postgres::FillNames(kRows, {{"table", table}}));
    ASSIGN_OR_RETURN(const auto gone, connection.Execute(sql, group_.value(), limit - total));
    total += gone.affected_rows();
    if (total >= limit) break;
  }
  return total;
}

absl::Status Retention::ForgetRetired(postgres::Connection& connection, int newest) const {
  return connection.Execute(schema_.Sql(kForgetRetired), group_.value(), newest).status();
}

}  // namespace lockstep::state
