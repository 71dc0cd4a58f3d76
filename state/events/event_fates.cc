#include "state/events/event_fates.h"

#include "platform/status.h"

namespace lockstep::state {
namespace {

// A dead letter whose event id could not be read is known by its message.
constexpr std::string_view kFates = R"(
SELECT i.received_at, p.event_id IS NOT NULL AS parked, coalesce(e.state, m.state) AS dead
  FROM unnest($3::uuid[], $4::text[], $5::bigint[], $6::text[])
       WITH ORDINALITY AS q (id, key, version, message, n)
  LEFT JOIN {state}.inbox i ON i.generation = $2 AND i.event_id = q.id
  LEFT JOIN {state}.parked p ON p.generation = $2 AND p.aggregate_key = q.key
                            AND p.version = q.version AND p.event_id = q.id
  LEFT JOIN {state}.dead_letters m ON m.generation = $2 AND m.message_id = q.message
  LEFT JOIN (SELECT DISTINCT ON (event_id) event_id, state FROM {state}.dead_letters
              WHERE group_name = $1 AND generation = $2 AND event_id = ANY ($3::uuid[])
              ORDER BY event_id, id DESC) e ON e.event_id = q.id
 ORDER BY q.n)";

constexpr std::string_view kEntries = R"(
SELECT event_id, received_at
  FROM {state}.inbox
 WHERE generation = $1
   AND ($2 = '' OR event_id > nullif($2, '')::uuid)
   AND ($3 = '' OR event_id <= nullif($3, '')::uuid)
   AND received_at >= $4 AND received_at < $5
 ORDER BY event_id
 LIMIT $6)";

// Column by column: a reader has no right to payloads.
constexpr std::string_view kTrace = R"(
SELECT i.received_at, k.settled_version, k.blocked_version,
       p.parked_at, p.version AS parked_version, p.event_id AS parked_event, p.aggregate_key AS parked_key,
       p.reason AS parked_reason, p.publish_time AS parked_publish_time,
       d.id AS dead_letter, d.event_id AS dead_event, d.version AS dead_version, d.aggregate_key AS dead_key,
       d.state AS dead_state, d.code, d.reason, d.dead_at, d.resolved_at, d.publish_time
  FROM (SELECT nullif($3, '')::uuid AS id, nullif($4, '') AS key, $5::bigint AS version,
               nullif($6, '') AS message) q
  LEFT JOIN {state}.inbox i ON i.generation = $2 AND i.event_id = q.id
  LEFT JOIN LATERAL (
       SELECT parked_at, version, event_id, aggregate_key, reason, publish_time
         FROM {state}.parked p
        WHERE p.generation = $2
          AND (p.event_id = q.id OR (p.aggregate_key = q.key AND p.version = q.version)
               OR p.message_id = q.message)
        LIMIT 1) p ON true
  LEFT JOIN LATERAL (
       SELECT id, event_id, version, aggregate_key, state, code, reason, dead_at, resolved_at, publish_time
         FROM {state}.dead_letters d
        WHERE d.group_name = $1 AND d.generation = $2
          AND (d.event_id = q.id OR (d.aggregate_key = q.key AND d.version = q.version)
               OR d.message_id = q.message)
        ORDER BY d.id DESC LIMIT 1) d ON true
  LEFT JOIN {state}.key_state k ON k.generation = $2
        AND k.aggregate_key = coalesce(q.key, p.aggregate_key, d.aggregate_key))";

}  // namespace

absl::StatusOr<std::vector<EventFates::Fate>> EventFates::Of(
    postgres::Connection& connection, int generation, const std::vector<Event>& events) const {
  postgres::Array ids, keys, versions, messages;
  for (const Event& event : events) {
    ids.AddPlain(event.event_id);
    keys.Add(event.aggregate_key);
    versions.Add(event.version);
    messages.AddIfAny(event.message_id);
  }
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kFates), group_, generation, ids,
                                                       keys, versions, messages));
  std::vector<Fate> fates;
  for (const postgres::Row row : rows) {
    fates.push_back({.received_at = row.OptionalTime("received_at"),
                     .parked = row.Bool("parked"),
                     .dead = row.String("dead")});
  }
  return fates;
}

absl::StatusOr<postgres::Result> EventFates::Entries(postgres::Connection& connection,
                                                     int generation, const Range& range,
                                                     int limit) const {
  return connection.Execute(schema_.Sql(kEntries), generation, range.after, range.last, range.from,
                            range.until, limit);
}

absl::StatusOr<postgres::Result> EventFates::Trace(postgres::Connection& connection, int generation,
                                                   const Event& event) const {
  return connection.Execute(schema_.Sql(kTrace), group_, generation, event.event_id,
                            event.aggregate_key, event.version, event.message_id);
}

}  // namespace lockstep::state
