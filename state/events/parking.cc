#include "state/events/parking.h"

#include "platform/status.h"
#include "state/events/message_columns.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kPark = R"(
INSERT INTO {state}.parked
       (generation, aggregate_key, version, event_id, event_type, message_id, ordering_key,
        publish_time, attributes, payload, reason)
SELECT $1::int, p.*
  FROM unnest($2::text[], $3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::text[],
              $8::timestamptz[], $9::jsonb[], $10::bytea[], $11::text[]) AS p
ON CONFLICT DO NOTHING)";

constexpr std::string_view kLoadParked = R"(
SELECT message_id, ordering_key, publish_time, attributes, payload
  FROM (SELECT *, row_number() OVER w AS n, sum(octet_length(payload)) OVER w AS bytes
          FROM {state}.parked
         WHERE generation = $1 AND aggregate_key = ANY ($2::text[])
        WINDOW w AS (ORDER BY aggregate_key, version, event_id)) AS waiting
 WHERE n <= $3 AND (n = 1 OR bytes <= $4)
 ORDER BY aggregate_key, version, event_id)";

constexpr std::string_view kLowest = R"(
SELECT min(version) AS version FROM {state}.parked
 WHERE generation = $1 AND aggregate_key = $2 AND version > $3)";

constexpr std::string_view kListParked = R"(
SELECT version, event_id, event_type, message_id, reason, publish_time, parked_at
  FROM {state}.parked
 WHERE generation = $1 AND aggregate_key = $2
 ORDER BY version, event_id
 LIMIT $3)";

constexpr std::string_view kRemove = R"(
DELETE FROM {state}.parked p
 USING unnest($2::text[], $3::bigint[], $4::uuid[]) AS r (key, version, event_id)
 WHERE p.generation = $1 AND p.aggregate_key = r.key AND p.version = r.version
   AND p.event_id = r.event_id)";

}  // namespace

Parking::Parking(const Schema& schema)
    : schema_(schema),
      park_(schema, "park", kPark),
      load_(schema, "parked_load", kLoadParked),
      remove_(schema, "parked_remove", kRemove) {}

absl::Status Parking::Park(postgres::Transaction& transaction, int generation,
                           const std::vector<Parked>& items) const {
  if (items.empty()) return absl::OkStatus();
  postgres::Array keys, versions, ids, types, reasons;
  MessageColumns messages;
  for (const auto& [item, reason] : items) {
    keys.Add(item->aggregate_key);
    versions.Add(item->event.version);
    ids.AddPlain(item->event.event_id.value());
    types.Add(item->event.event_type);
    messages.Add(*item);
    reasons.AddPlain(reason == Reason::kGap ? "gap" : "poison");
  }
  return transaction.Run(park_, generation, keys, versions, ids, types, messages.message_id,
                         messages.ordering_key, messages.publish_time, messages.attributes,
                         messages.payload, reasons);
}

absl::StatusOr<std::vector<envelope::Received>> Parking::Load(postgres::Transaction& transaction,
                                                              int generation,
                                                              const std::vector<std::string>& keys,
                                                              int max_events,
                                                              int64_t max_bytes) const {
  std::vector<envelope::Received> events;
  if (keys.empty()) return events;
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   transaction.Execute(load_, generation, keys, max_events, max_bytes));
  events.reserve(rows.rows());
  for (const postgres::Row row : rows) events.push_back(ReadMessage(row));
  return events;
}

absl::StatusOr<std::optional<int64_t>> Parking::Lowest(postgres::Transaction& transaction,
                                                       int generation, const std::string& key,
                                                       int64_t after) const {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   transaction.Execute(schema_.Sql(kLowest), generation, key, after));
  return rows[0].OptionalInt("version");
}

absl::StatusOr<postgres::Result> Parking::List(postgres::Connection& connection, int generation,
                                               const std::string& key, int limit) const {
  return connection.Execute(schema_.Sql(kListParked), generation, key, limit);
}

absl::Status Parking::Remove(postgres::Transaction& transaction, int generation,
                             const std::vector<const envelope::Received*>& items) const {
  if (items.empty()) return absl::OkStatus();
  postgres::Array keys, versions, ids;
  for (const envelope::Received* item : items) {
    keys.Add(item->aggregate_key);
    versions.Add(item->event.version);
    ids.AddPlain(item->event.event_id.value());
  }
  return transaction.Run(remove_, generation, keys, versions, ids);
}

}  // namespace lockstep::state
