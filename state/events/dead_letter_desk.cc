#include "state/events/dead_letter_desk.h"

#include <utility>

#include "platform/status.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kList = R"(
SELECT d.id, d.event_id, d.aggregate_key, d.event_type, d.message_id, d.ordering_key, d.code,
       d.reason, d.state, d.note, d.attributes, d.version, d.attempts, d.blocks,
       (SELECT count(*) FROM {state}.parked p
         WHERE p.generation = d.generation AND d.blocks AND p.aggregate_key = d.aggregate_key
           AND p.version > d.version) AS waiting,
       d.payload_bytes, d.dead_at
  FROM {state}.dead_letters d
 WHERE d.group_name = $1
   AND ($2::bigint IS NULL OR d.id = $2)
   AND ($3 = '' OR d.event_id = nullif($3, '')::uuid)
   AND ($4 = '' OR d.aggregate_key = $4 OR d.ordering_key = $4)
   AND ($5 = '' OR d.code = $5)
   AND ($6 = '' OR d.event_type = $6)
   AND CASE $7 WHEN '' THEN d.state IN ('dead', 'quarantined')
               WHEN 'any' THEN true
               ELSE d.state = $7 END
 ORDER BY d.aggregate_key, d.version, d.id
 LIMIT $8)";

constexpr std::string_view kCountOpen = R"(
SELECT count(*)
  FROM (SELECT 1 FROM {state}.dead_letters
         WHERE group_name = $1 AND state IN ('dead', 'quarantined')
         LIMIT 100000) open)";

constexpr std::string_view kCountReplayed = R"(
SELECT count(*) FROM {state}.dead_letters WHERE group_name = $1 AND state = 'replayed')";

constexpr std::string_view kNewest = R"(
SELECT id, event_id, message_id, aggregate_key, ordering_key, version, event_type, code, reason,
       attempts, blocks, state, dead_at, publish_time
  FROM {state}.dead_letters
 WHERE group_name = $1 AND state IN ('dead', 'quarantined')
 ORDER BY id DESC
 LIMIT $2)";

// Apart: a reader has no right to payloads.
constexpr std::string_view kPayload =
    "SELECT payload FROM {state}.dead_letters WHERE group_name = $1 AND id = $2";

constexpr std::string_view kQuarantine = R"(
WITH moved AS (
  UPDATE {state}.dead_letters SET state = $3, note = $5
   WHERE group_name = $1 AND id = ANY ($2::bigint[])
     AND state = CASE WHEN $3 = 'dead' THEN 'quarantined' ELSE 'dead' END
  RETURNING id, event_id, aggregate_key, version, code)
INSERT INTO {state}.audit (group_name, action, operator, reason, old, new)
SELECT $1, 'dead_letters.quarantine', $4, $5, to_jsonb(moved),
       jsonb_build_object('state', $3::text)
  FROM moved)";

DeadLetterRow Read(const postgres::Row& row) {
  return {.id = row.Int("id"),
          .event_id = row.String("event_id"),
          .aggregate_key = row.String("aggregate_key"),
          .event_type = row.String("event_type"),
          .message_id = row.String("message_id"),
          .ordering_key = row.String("ordering_key"),
          .code = row.String("code"),
          .reason = row.String("reason"),
          .state = row.String("state"),
          .note = row.String("note"),
          .attributes = row.String("attributes"),
          .version = row.OptionalInt("version"),
          .attempts = static_cast<int>(row.Int("attempts")),
          .blocks = row.Bool("blocks"),
          .waiting = row.Int("waiting"),
          .payload_bytes = row.Int("payload_bytes"),
          .dead_at = row.String("dead_at"),
          .payload = {}};
}

}  // namespace

absl::StatusOr<std::vector<DeadLetterRow>> DeadLetterDesk::List(postgres::Connection& connection,
                                                                const DeadLetterFilter& filter,
                                                                int limit) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kList), group_, filter.id,
                                                       filter.event_id, filter.key, filter.code,
                                                       filter.event_type, filter.state, limit));
  std::vector<DeadLetterRow> letters;
  for (const postgres::Row row : rows) letters.push_back(Read(row));
  return letters;
}

absl::StatusOr<DeadLetterRow> DeadLetterDesk::Show(postgres::Connection& connection, int64_t id,
                                                   bool with_payload) const {
  ASSIGN_OR_RETURN(auto letters, List(connection, {.id = id, .state = "any"}, 1));
  if (letters.empty()) return NotFound("group '{}' has no dead letter {}", group_.value(), id);
  if (with_payload) {
    ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kPayload), group_, id));
    if (!rows.empty()) letters[0].payload = rows[0].Bytes("payload");
  }
  return std::move(letters[0]);
}

absl::StatusOr<int64_t> DeadLetterDesk::Quarantine(postgres::Connection& connection,
                                                   const std::vector<int64_t>& ids,
                                                   bool quarantined,
                                                   const std::string& operator_name,
                                                   const std::string& note) const {
  return connection.Affected(schema_.Sql(kQuarantine), group_, ids,
                             quarantined ? "quarantined" : "dead", operator_name, note);
}

absl::StatusOr<int64_t> DeadLetterDesk::CountOpen(postgres::Connection& connection) const {
  return connection.Number(schema_.Sql(kCountOpen), group_);
}

absl::StatusOr<int64_t> DeadLetterDesk::CountReplayed(postgres::Connection& connection) const {
  return connection.Number(schema_.Sql(kCountReplayed), group_);
}

absl::StatusOr<postgres::Result> DeadLetterDesk::Newest(postgres::Connection& connection,
                                                        int limit) const {
  return connection.Execute(schema_.Sql(kNewest), group_, limit);
}

}  // namespace lockstep::state
