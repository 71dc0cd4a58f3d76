#include "state/events/erasure.h"

#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::state {
namespace {

// With a content type that is refused, and why: an empty protobuf payload would be a message of its
// own.
constexpr std::string_view kLeft = R"((
      SELECT jsonb_object_agg(a.key, a.value) FROM jsonb_each(t.attributes) AS a
       WHERE a.key IN ('event_id', 'event_type', 'aggregate_type', 'aggregate_id', 'version',
                       'schema_version', 'occurred_at', 'topic', 'sequence', 'tenant_id'))
      || '{"content_type": "application/x-lockstep-erased", "lockstep_refused": "it was erased"}')";

// A message whose aggregate could not be read is found by its ordering key, the aggregate's id.
constexpr std::string_view kErase = R"(
WITH letters AS (
  UPDATE {state}.dead_letters t
     SET payload = '', reason = 'erased', note = NULL, attributes = coalesce({left}, '{}')
   WHERE (t.aggregate_key = $1 OR (t.aggregate_key IS NULL AND t.ordering_key = $2))
     AND t.attributes ->> 'content_type' IS DISTINCT FROM 'application/x-lockstep-erased'
  RETURNING t.group_name),
waiting AS (
  UPDATE {state}.parked t
     SET payload = '', attributes = coalesce({left}, '{}')
   WHERE t.aggregate_key = $1
     AND t.attributes ->> 'content_type' IS DISTINCT FROM 'application/x-lockstep-erased'
  RETURNING t.generation),
counted AS (
  SELECT group_name, count(*) AS letters, 0 AS parked FROM letters GROUP BY group_name
   UNION ALL
  SELECT s.group_name, 0, count(*) FROM waiting JOIN {state}.slots s USING (generation)
   GROUP BY s.group_name),
audited AS (
  INSERT INTO {state}.audit (group_name, action, operator, reason, new)
  SELECT group_name, 'erase', $3, $4,
         jsonb_build_object('aggregate', $1::text, 'dead_letters', sum(letters),
                            'parked', sum(parked))
    FROM counted GROUP BY group_name)
SELECT (SELECT count(*) FROM letters) AS letters, (SELECT count(*) FROM waiting) AS parked)";

}  // namespace

absl::StatusOr<Erased> EraseAggregate(postgres::Connection& connection, const Schema& schema,
                                      const envelope::Aggregate& aggregate,
                                      const std::string& operator_name, const std::string& reason) {
  const std::string sql = postgres::FillNames(kErase, {{"left", std::string(kLeft)}});
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   connection.Execute(schema.Sql(sql), envelope::AggregateKey(aggregate),
                                      aggregate.id, operator_name, reason));
  return Erased{.dead_letters = rows[0].Int("letters"), .parked = rows[0].Int("parked")};
}

}  // namespace lockstep::state
