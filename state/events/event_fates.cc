#include "state/events/event_fates.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "state/events/inbox.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kGoesByVersions =
    "coalesce((SELECT inbox = 'aggregate' FROM {state}.slots WHERE generation = $2), false)";
// It, or another one in its place: but not if that is another one of its very version.
constexpr std::string_view kIsSettled =
    "k.settled_version >= q.version AND (k.settled_version > q.version OR"
    " coalesce(k.snapshot_version >= q.version OR k.last_event = q.id,"
    "          k.last_event IS NULL OR q.id IS NULL))";

std::string FillIn(std::string_view sql) {
  return postgres::FillNames(
      sql, {{"by_versions", std::string(kGoesByVersions)}, {"settled", std::string(kIsSettled)}});
}

// A dead letter whose event id could not be read is known by its message.
constexpr std::string_view kFates = R"(
SELECT i.fate, p.event_id IS NOT NULL AS parked, coalesce(e.state, m.state) AS dead,
       coalesce(k.snapshot_version >= q.version, false) AS covered,
       coalesce(b.by_versions AND NOT q.snapshot AND {settled}, false) AS settled
  FROM unnest($3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::boolean[])
       WITH ORDINALITY AS q (id, key, version, message, snapshot, n)
 CROSS JOIN (SELECT {by_versions} AS by_versions) b
  LEFT JOIN {state}.inbox i ON i.generation = $2 AND i.event_id = q.id
  LEFT JOIN {state}.parked p ON p.generation = $2 AND p.aggregate_key = q.key
                            AND p.version = q.version AND p.event_id = q.id
  LEFT JOIN {state}.key_state k ON k.generation = $2 AND k.aggregate_key = q.key
  LEFT JOIN {state}.dead_letters m ON m.generation = $2 AND m.message_id = q.message
  LEFT JOIN (SELECT DISTINCT ON (event_id) event_id, state FROM {state}.dead_letters
              WHERE group_name = $1 AND generation = $2 AND event_id = ANY ($3::uuid[])
              ORDER BY event_id, id DESC) e ON e.event_id = q.id
 ORDER BY q.n)";

// Of one table or the other, as the generation goes.
constexpr std::string_view kEntries = R"(
WITH kind AS (
  SELECT coalesce((SELECT inbox = 'aggregate' FROM {state}.slots WHERE generation = $1), false)
         AS by_versions)
SELECT event_id, received_at
  FROM (SELECT generation, event_id, received_at FROM {state}.inbox
         WHERE NOT (SELECT by_versions FROM kind)
         UNION ALL
        SELECT generation, last_event, updated_at FROM {state}.key_state
         WHERE (SELECT by_versions FROM kind)) seen
 WHERE generation = $1
   AND ($2 = '' OR event_id > nullif($2, '')::uuid)
   AND ($3 = '' OR event_id <= nullif($3, '')::uuid)
   AND received_at >= $4 AND received_at < $5
 ORDER BY event_id
 LIMIT $6)";

// Column by column: a reader has no right to payloads. Who knows the id asks for that event alone:
// a version may be another's too (a snapshot's, a fork's), and a message only tells where no id
// could be read.
constexpr std::string_view kTrace = R"(
SELECT i.fate, coalesce(i.received_at, CASE WHEN b.by_versions AND k.last_event = q.id THEN k.updated_at END)
       AS received_at,
       k.settled_version, k.snapshot_version, k.blocked_version, k.last_event, b.by_versions,
       coalesce(b.by_versions AND {settled}, false) AS settled,
       coalesce(p.event_id, d.event_id) AS event_id, coalesce(p.version, d.version) AS version,
       coalesce(p.aggregate_key, d.aggregate_key) AS aggregate_key,
       coalesce(p.message_id, d.message_id) AS message_id,
       coalesce(p.publish_time, d.publish_time) AS publish_time,
       p.event_id IS NOT NULL AS parked, p.parked_at,
       d.id AS dead_letter, d.state AS dead, d.code, d.reason, d.dead_at, d.resolved_at
  FROM (SELECT nullif($3, '')::uuid AS id, nullif($4, '') AS key, $5::bigint AS version,
               nullif($6, '') AS message) q
 CROSS JOIN (SELECT {by_versions} AS by_versions) b
  LEFT JOIN {state}.inbox i ON i.generation = $2 AND i.event_id = q.id
  LEFT JOIN LATERAL (
       SELECT parked_at, version, event_id, aggregate_key, message_id, publish_time
         FROM {state}.parked p
        WHERE p.generation = $2
          AND (p.event_id = q.id
               OR (q.id IS NULL AND p.aggregate_key = q.key AND p.version = q.version)
               OR (q.id IS NULL AND p.message_id = q.message))
        LIMIT 1) p ON true
  LEFT JOIN LATERAL (
       SELECT id, event_id, version, aggregate_key, message_id, state, code, reason, dead_at, resolved_at,
              publish_time
         FROM {state}.dead_letters d
        WHERE d.group_name = $1 AND d.generation = $2
          AND (d.event_id = q.id
               OR (q.id IS NULL AND d.aggregate_key = q.key AND d.version = q.version)
               OR ((q.id IS NULL OR d.event_id IS NULL) AND d.message_id = q.message))
        ORDER BY d.id DESC LIMIT 1) d ON true
  LEFT JOIN {state}.key_state k ON k.generation = $2
        AND k.aggregate_key = coalesce(q.key, p.aggregate_key, d.aggregate_key))";

// By version, so that what everything else waits for is among them.
constexpr std::string_view kParkedOfKey = R"(
SELECT event_id, version, event_type, aggregate_key, reason, parked_at
  FROM {state}.parked
 WHERE generation = $1 AND (aggregate_key = $2 OR ordering_key = $2)
 ORDER BY version, event_id
 LIMIT $3)";

constexpr std::string_view kDeadOfKey = R"(
SELECT id, event_id, version, event_type, aggregate_key, state, code, reason, dead_at, resolved_at
  FROM {state}.dead_letters
 WHERE group_name = $1 AND generation = $2 AND (aggregate_key = $3 OR ordering_key = $3)
 ORDER BY id DESC
 LIMIT $4)";

constexpr std::string_view kStatesOfKey = R"(
SELECT aggregate_key, settled_version, snapshot_version, updated_at
  FROM {state}.key_state
 WHERE generation = $1 AND aggregate_key = ANY ($2)
 ORDER BY aggregate_key
 LIMIT $3)";

// Of a row with `dead`, `parked` and the inbox's `fate`.
std::string NameOf(const postgres::Row& row) {
  const std::string_view dead = row.Text("dead");
  if (dead == "dead" || dead == "quarantined") return "dead";
  if (dead == "discarded") return "discarded";
  if (row.Bool("parked")) return "parked";
  if (row.IsNull("fate")) return row.Bool("settled") ? "settled" : "";
  switch (static_cast<Fate>(row.Text("fate").front())) {
    case Fate::kApplied:
      return "applied";
    case Fate::kSuperseded:
      return "superseded";
    case Fate::kIgnored:
      return "ignored";
    case Fate::kDead:
      return "discarded";  // and its dead letter is not kept any longer
  }
  return "";
}

std::string VerdictOn(const postgres::Row& row, const TracedEvent& traced) {
  const EventFates::Event& event = traced.event;
  if (traced.fate == "dead") {
    return fmt::format("dead letter {} ({}), {}", *traced.dead_letter, row.Text("dead"),
                       row.Text("code"));
  }
  if (traced.fate == "parked") {
    const auto blocked = row.OptionalInt("blocked_version");
    if (blocked && *blocked < event.version) {
      return fmt::format("parked: version {} is a dead letter", *blocked);
    }
    return traced.settled_version
               ? fmt::format("parked: waits for version {}", *traced.settled_version + 1)
               : "parked";
  }
  if (traced.fate == "discarded") {
    return traced.dead_letter ? fmt::format("dead letter {} was discarded", *traced.dead_letter)
                              : "a dead letter that was discarded, and is not kept any longer";
  }
  if (traced.fate == "settled") {
    return fmt::format("settled: version {} and all before it have ended", *traced.settled_version);
  }
  if (!traced.fate.empty()) return traced.fate;
  const auto snapshot = row.OptionalInt("snapshot_version");
  if (snapshot && event.version && *snapshot >= *event.version) {
    return fmt::format("not received; a snapshot of version {} covers it", *snapshot);
  }
  if (row.Bool("by_versions") && traced.settled_version == event.version && event.version) {
    return fmt::format(
        "not received: version {} came from another event, {}: a forked or restored "
        "source",
        *event.version, row.Text("last_event"));
  }
  if (traced.settled_version && event.version && *traced.settled_version >= *event.version) {
    return event.event_id.empty()
               ? fmt::format("settled: version {} and all before it have ended",
                             *traced.settled_version)
               : fmt::format("not received, but version {} is settled", *traced.settled_version);
  }
  if (event.event_id.empty()) {
    return "not known: the inbox has events by their id; name it, or the --source";
  }
  return row.Bool("by_versions") && !event.version
             ? "not known: events are kept by their versions; name its --key and --version, or the "
               "--source"
             : "not received";
}

}  // namespace

absl::StatusOr<std::vector<EventFates::Fate>> EventFates::Of(
    postgres::Connection& connection, int generation, const std::vector<Event>& events) const {
  postgres::Array ids, keys, versions, messages, snapshots;
  for (const Event& event : events) {
    ids.AddPlain(event.event_id);
    keys.Add(event.aggregate_key);
    versions.Add(event.version);
    messages.AddIfAny(event.message_id);
    snapshots.Add(event.snapshot);
  }
  ASSIGN_OR_RETURN(const auto rows,
                   connection.Execute(schema_.Sql(FillIn(kFates)), group_, generation, ids, keys,
                                      versions, messages, snapshots));
  std::vector<Fate> fates;
  for (const postgres::Row row : rows) {
    fates.push_back({.name = NameOf(row), .covered = row.Bool("covered")});
  }
  return fates;
}

absl::StatusOr<postgres::Result> EventFates::Entries(postgres::Connection& connection,
                                                     int generation, const Range& range,
                                                     int limit) const {
  return connection.Execute(schema_.Sql(kEntries), generation, range.after, range.last, range.from,
                            range.until, limit);
}

absl::StatusOr<TracedEvent> EventFates::Trace(postgres::Connection& connection, int generation,
                                              Event event) const {
  const auto found =
      connection.Execute(schema_.Sql(FillIn(kTrace)), group_, generation, event.event_id,
                         event.aggregate_key, event.version, event.message_id);
  if (postgres::SqlState(found.status()) == "22P02") {
    return InvalidArgument("'{}' is not an event id (a UUID)", event.event_id);
  }
  RETURN_IF_ERROR(found.status());
  const postgres::Row row = (*found)[0];
  const bool had_id = !event.event_id.empty();
  if (!had_id) event.event_id = row.String("event_id");
  if (event.aggregate_key.empty()) event.aggregate_key = row.String("aggregate_key");
  if (!event.version) event.version = row.OptionalInt("version");
  if (event.message_id.empty()) event.message_id = row.String("message_id");
  // What waits or died says which event it is, and the inbox can be asked about that.
  if (!had_id && !event.event_id.empty()) return Trace(connection, generation, std::move(event));
  TracedEvent traced{.event = std::move(event),
                     .fate = NameOf(row),
                     .reason = row.String("reason"),
                     .settled_version = row.OptionalInt("settled_version"),
                     .dead_letter = row.OptionalInt("dead_letter"),
                     .published = row.OptionalTime("publish_time"),
                     .received_at = row.OptionalTime("received_at"),
                     .parked_at = row.OptionalTime("parked_at"),
                     .dead_at = row.OptionalTime("dead_at"),
                     .resolved_at = row.OptionalTime("resolved_at")};
  traced.verdict = VerdictOn(row, traced);
  return traced;
}

absl::StatusOr<EventFates::OfKey> EventFates::TraceKey(postgres::Connection& connection,
                                                       int generation, const std::string& key,
                                                       int limit) const {
  ASSIGN_OR_RETURN(auto parked,
                   connection.Execute(schema_.Sql(kParkedOfKey), generation, key, limit));
  ASSIGN_OR_RETURN(auto dead,
                   connection.Execute(schema_.Sql(kDeadOfKey), group_, generation, key, limit));
  // An ordering key is of one aggregate or of several; those that are in trouble are found by it.
  std::set<std::string> aggregates = {key};
  for (const postgres::Row row : parked) aggregates.insert(row.String("aggregate_key"));
  for (const postgres::Row row : dead) {
    if (!row.IsNull("aggregate_key")) aggregates.insert(row.String("aggregate_key"));
  }
  postgres::Array keys;
  for (const std::string& aggregate : aggregates) keys.Add(aggregate);
  ASSIGN_OR_RETURN(auto states,
                   connection.Execute(schema_.Sql(kStatesOfKey), generation, keys, limit));
  return OfKey{std::move(states), std::move(parked), std::move(dead)};
}

}  // namespace lockstep::state
