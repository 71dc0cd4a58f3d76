#include "state/events/inbox.h"

#include "platform/status.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kCountSince = R"(
SELECT count(*)
  FROM {state}.inbox
 WHERE received_at >= $2
   AND generation = (SELECT generation FROM {state}.active_slots WHERE group_name = $1))";

constexpr std::string_view kCountMissing = R"(
SELECT count(*) AS all_of_them, count(*) FILTER (WHERE i.received_at >= $4) AS recent
  FROM {state}.inbox i
 WHERE i.generation = (SELECT generation FROM {state}.active_slots WHERE group_name = $1)
   AND i.received_at >= $3
   AND NOT EXISTS (
     SELECT FROM {state}.inbox o
      WHERE o.generation = (SELECT generation FROM {state}.active_slots WHERE group_name = $2)
        AND o.event_id = i.event_id))";

constexpr std::string_view kSeen = R"(
SELECT i.event_id IS NOT NULL AS seen
  FROM unnest($1::text[]) WITH ORDINALITY AS w(id, n)
  LEFT JOIN {state}.inbox i ON i.generation = $2 AND i.event_id = nullif(w.id, '')::uuid
 ORDER BY w.n)";

}  // namespace

absl::StatusOr<int64_t> Inbox::CountSince(postgres::Connection& connection,
                                          const ConsumerGroup& group, WallTime since) const {
  return connection.Number(schema_.Sql(kCountSince), group, since);
}

absl::StatusOr<Inbox::Missing> Inbox::CountMissing(postgres::Transaction& transaction,
                                                   const ConsumerGroup& in,
                                                   const ConsumerGroup& not_in, WallTime since,
                                                   WallTime lately) const {
  ASSIGN_OR_RETURN(const auto rows,
                   transaction.Execute(schema_.Sql(kCountMissing), in, not_in, since, lately));
  return Missing{rows[0].Int("all_of_them"), rows[0].Int("recent")};
}

absl::StatusOr<std::vector<bool>> Inbox::Seen(postgres::Connection& connection, int generation,
                                              const std::vector<std::string>& ids) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kSeen), ids, generation));
  std::vector<bool> seen;
  for (const postgres::Row row : rows) seen.push_back(row.Bool("seen"));
  return seen;
}

}  // namespace lockstep::state
