#include "publisher/outbox/event_ledger.h"

#include <nlohmann/json.hpp>

#include "platform/status.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {
namespace {

// {which}: of the rows.
constexpr char kLedger[] = R"sql(
SELECT event_id, tenant_id, aggregate_type, aggregate_id, version, event_type, message_id, published_at,
       CASE WHEN published_at IS NOT NULL THEN 'published' WHEN quarantined_at IS NOT NULL THEN 'quarantined'
            WHEN dead_at IS NOT NULL THEN 'dead' ELSE 'pending' END AS state
FROM {status}
WHERE {which})sql";

constexpr char kPageOfLedger[] = R"sql(
      ($1 = '' OR event_id > nullif($1, '')::uuid) AND (published_at IS NULL OR published_at >= $2)
  AND (cardinality($3::text[]) = 0 OR topic = ANY ($3::text[]))
ORDER BY event_id
LIMIT $4)sql";

constexpr char kKept[] = "SELECT event_id FROM {outbox} WHERE event_id = ANY ($1::uuid[])";

constexpr char kTimes[] =
    "SELECT min(published_at) AS oldest, clock_timestamp() AS now FROM {published}";

constexpr char kEvent[] = R"sql(
SELECT event_id, tenant_id, topic, aggregate_type, aggregate_id, event_type, version, schema_version, payload,
       content_type, attributes, occurred_at
FROM {outbox} WHERE sequence = $1)sql";

std::string OnLedger(const postgres::QualifiedName& table, std::string_view sql,
                     const char* which = "") {
  return FillParts(postgres::FillNames(sql, {{"which", which}}), table);
}

envelope::Aggregate AggregateOf(const postgres::Row& row) {
  return {.tenant_id = row.OptionalText("tenant_id"),
          .type = row.String("aggregate_type"),
          .id = row.String("aggregate_id")};
}

SourceEvent ReadLedgerRow(const postgres::Row& row) {
  return {.event_id = row.String("event_id"),
          .aggregate_key = envelope::AggregateKey(AggregateOf(row)),
          .version = row.Int("version"),
          .event_type = row.String("event_type"),
          .message_id = row.String("message_id"),
          .state = row.String("state"),
          .published = row.OptionalTime("published_at")};
}

}  // namespace

absl::StatusOr<std::vector<SourceEvent>> ReadLedger(postgres::Connection& connection,
                                                    const postgres::QualifiedName& table,
                                                    const LedgerFilter& filter,
                                                    const std::string& after, int limit) {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(OnLedger(table, kLedger, kPageOfLedger),
                                                       after, filter.since, filter.topics, limit));
  std::vector<SourceEvent> ledger;
  for (const postgres::Row row : rows) ledger.push_back(ReadLedgerRow(row));
  return ledger;
}

absl::StatusOr<SourceEvent> ReadLedgerRow(postgres::Connection& connection,
                                          const postgres::QualifiedName& table, int64_t sequence) {
  ASSIGN_OR_RETURN(const auto rows,
                   connection.Execute(OnLedger(table, kLedger, "sequence = $1"), sequence));
  if (rows.empty()) return NotFound("{} has no row {}", table.ToString(), sequence);
  return ReadLedgerRow(rows[0]);
}

absl::StatusOr<std::vector<std::string>> KeptEvents(postgres::Connection& connection,
                                                    const postgres::QualifiedName& table,
                                                    const std::vector<std::string>& ids) {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(OnLedger(table, kKept), ids));
  std::vector<std::string> kept;
  for (const postgres::Row row : rows) kept.push_back(row.String("event_id"));
  return kept;
}

absl::StatusOr<LedgerTimes> ReadLedgerTimes(postgres::Connection& connection,
                                            const postgres::QualifiedName& table) {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(OnLedger(table, kTimes)));
  const WallTime now = rows[0].Time("now");
  return LedgerTimes{.oldest = rows[0].OptionalTime("oldest").value_or(now), .now = now};
}

absl::StatusOr<envelope::Event> LoadEvent(postgres::Connection& connection,
                                          const postgres::QualifiedName& table, int64_t sequence) {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(OnLedger(table, kEvent), sequence));
  if (rows.empty()) return NotFound("{} has no row {}", table.ToString(), sequence);
  const postgres::Row row = rows[0];
  envelope::Event event;
  event.event_id = EventId(row.String("event_id"));
  event.event_type = row.String("event_type");
  event.aggregate = AggregateOf(row);
  event.version = row.Int("version");
  event.schema_version = static_cast<int>(row.Int("schema_version"));
  event.occurred_at = row.Time("occurred_at");
  event.content_type = row.String("content_type");
  event.topic = row.String("topic");
  const auto attributes = nlohmann::json::parse(row.Text("attributes"), nullptr, false);
  for (const auto& [name, value] : attributes.items()) {
    event.attributes[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  event.payload = row.Bytes("payload");
  return event;
}

}  // namespace lockstep::publisher
