// The part of Inbox that knows what a generation has seen that goes by versions: all that key_state
// has settled, and what waits or is dead.
#include "platform/status.h"
#include "state/events/inbox.h"

namespace lockstep::state {
namespace {

// Of a generation that goes by ids, the inbox alone says it.
constexpr std::string_view kSeen = R"(
SELECT i.event_id IS NOT NULL
       OR s.by_versions AND NOT w.snapshot
          AND coalesce(k.settled_version >= w.version
                       AND (k.settled_version > w.version OR k.last_event IS NULL
                            OR k.last_event = w.id OR k.snapshot_version >= w.version), false)
       OR s.by_versions AND EXISTS (SELECT FROM {state}.parked p
                                     WHERE p.generation = $1 AND p.aggregate_key = w.key
                                       AND p.version = w.version AND p.event_id = w.id)
       OR s.by_versions AND EXISTS (SELECT FROM {state}.dead_letters d
                                     WHERE d.generation = $1 AND d.event_id = w.id) AS seen
  FROM (SELECT nullif(id, '')::uuid AS id, key, version, snapshot, n
          FROM unnest($2::text[], $3::text[], $4::bigint[], $5::boolean[])
               WITH ORDINALITY AS a (id, key, version, snapshot, n)) w
 CROSS JOIN (SELECT coalesce((SELECT inbox = 'aggregate' FROM {state}.slots WHERE generation = $1),
                             false) AS by_versions) s
  LEFT JOIN {state}.inbox i ON i.generation = $1 AND i.event_id = w.id
  LEFT JOIN {state}.key_state k ON s.by_versions AND k.generation = $1 AND k.aggregate_key = w.key
 ORDER BY w.n)";

constexpr std::string_view kWaiting = R"(
SELECT DISTINCT w.id AS event_id
  FROM unnest($2::uuid[], $3::text[], $4::bigint[]) AS w (id, key, version)
 WHERE EXISTS (SELECT FROM {state}.parked p
                WHERE p.generation = $1 AND p.aggregate_key = w.key AND p.version = w.version
                  AND p.event_id = w.id)
    OR EXISTS (SELECT FROM {state}.dead_letters d WHERE d.generation = $1 AND d.event_id = w.id))";

// What one has seen of an aggregate: all up to its settled version, and what waits or is dead past
// that. Of an aggregate that the other has no row of, at least one version is missing.
constexpr std::string_view kMissing = R"(
WITH sides AS (
  SELECT (SELECT generation FROM {state}.active_slots WHERE group_name = $1) AS have,
         (SELECT generation FROM {state}.active_slots WHERE group_name = $2) AS lack),
waiting AS MATERIALIZED (
  SELECT p.generation, p.aggregate_key, p.version, max(p.parked_at) AS at
    FROM {state}.parked p, sides WHERE p.generation IN (have, lack) GROUP BY 1, 2, 3
   UNION
  SELECT d.generation, d.aggregate_key, d.version, max(d.dead_at)
    FROM {state}.dead_letters d, sides
   WHERE d.generation IN (have, lack) AND d.aggregate_key IS NOT NULL AND d.version IS NOT NULL
     AND d.attributes ->> 'lockstep_kind' IS DISTINCT FROM 'snapshot'
   GROUP BY 1, 2, 3),
missing AS (
  SELECT k.settled_version - known.version
         - (SELECT count(DISTINCT w.version) FROM waiting w
             WHERE w.generation = s.lack AND w.aggregate_key = k.aggregate_key
               AND w.version > known.version AND w.version <= k.settled_version) AS versions,
         k.updated_at AS at
    FROM sides s
    JOIN {state}.key_state k ON k.generation = s.have AND k.updated_at >= $3
    LEFT JOIN {state}.key_state o ON o.generation = s.lack AND o.aggregate_key = k.aggregate_key
   CROSS JOIN LATERAL (SELECT coalesce(o.settled_version, k.settled_version - 1) AS version) known
   WHERE k.settled_version > known.version AND k.settled_version > 0
   UNION ALL
  SELECT 1, w.at
    FROM sides s
    JOIN waiting w ON w.generation = s.have AND w.at >= $3
    LEFT JOIN {state}.key_state k ON k.generation = s.have AND k.aggregate_key = w.aggregate_key
    LEFT JOIN {state}.key_state o ON o.generation = s.lack AND o.aggregate_key = w.aggregate_key
   WHERE w.version > coalesce(k.settled_version, 0) AND w.version > coalesce(o.settled_version, 0)
     AND NOT EXISTS (SELECT FROM waiting l WHERE l.generation = s.lack
                        AND l.aggregate_key = w.aggregate_key AND l.version = w.version))
SELECT coalesce(sum(versions), 0)::bigint AS all_of_them,
       coalesce(sum(versions) FILTER (WHERE at >= $4), 0)::bigint AS recent
  FROM missing WHERE versions > 0)";

}  // namespace

absl::StatusOr<std::vector<bool>> Inbox::Seen(postgres::Connection& connection, int generation,
                                              const std::vector<EventFates::Event>& events) const {
  postgres::Array ids, keys, versions, snapshots;
  for (const EventFates::Event& event : events) {
    ids.Add(event.event_id);
    keys.AddIfAny(event.aggregate_key);
    versions.Add(event.version);
    snapshots.Add(event.snapshot);
  }
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kSeen), generation, ids, keys,
                                                       versions, snapshots));
  std::vector<bool> seen;
  for (const postgres::Row row : rows) seen.push_back(row.Bool("seen"));
  return seen;
}

absl::StatusOr<std::unordered_set<std::string>> Inbox::Waiting(
    postgres::Transaction& transaction, int generation,
    std::span<const envelope::Received* const> messages) const {
  postgres::Array ids, keys, versions;
  for (const envelope::Received* const message : messages) {
    ids.AddPlain(message->event.event_id.value());
    keys.Add(message->aggregate_key);
    versions.Add(message->event.version);
  }
  ASSIGN_OR_RETURN(const auto rows,
                   transaction.Execute(schema_.Sql(kWaiting), generation, ids, keys, versions));
  std::unordered_set<std::string> waiting;
  for (const postgres::Row row : rows) waiting.insert(row.String("event_id"));
  return waiting;
}

absl::StatusOr<postgres::Result> Inbox::MissingVersions(postgres::Transaction& transaction,
                                                        const ConsumerGroup& in,
                                                        const ConsumerGroup& not_in, WallTime since,
                                                        WallTime lately) const {
  return transaction.Execute(schema_.Sql(kMissing), in, not_in, since, lately);
}

}  // namespace lockstep::state
