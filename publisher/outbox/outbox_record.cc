#include "publisher/outbox/outbox_record.h"

#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using nlohmann::json;
using postgres::FillNames;
using postgres::Result;
using postgres::Row;

// Counting further would cost more than it tells.
constexpr int64_t kCountAtMost = 1'000'000;

constexpr char kBacklog[] = R"sql(
SELECT count(*) AS pending, count(lock_token) AS locked,
       greatest(0, extract(epoch FROM now() - min(created_at) FILTER (WHERE available_at < 'infinity')) * 1000)::bigint
         AS oldest_ms
FROM (SELECT lock_token, created_at, available_at FROM {outbox}
      WHERE published_at IS NULL AND dead_at IS NULL AND quarantined_at IS NULL
      LIMIT $1::bigint) pending)sql";

constexpr char kDeadCounts[] = R"sql(
SELECT count(*) FILTER (WHERE quarantined_at IS NULL) AS dead, count(quarantined_at) AS quarantined
FROM (SELECT quarantined_at FROM {outbox}
      WHERE published_at IS NULL AND available_at = 'infinity'
        AND (dead_at IS NOT NULL OR quarantined_at IS NOT NULL)
      LIMIT $1::bigint) dead)sql";

constexpr char kNewestDead[] = R"sql(
SELECT d.sequence, d.event_id, d.event_type, d.aggregate_type, d.aggregate_id, d.version, d.topic,
       d.error_code, d.last_error, d.attempts, d.dead_at,
       (SELECT count(*)
        FROM (SELECT 1 FROM {outbox} h
              WHERE h.published_at IS NULL AND h.aggregate_id = d.aggregate_id
                AND h.aggregate_type = d.aggregate_type AND h.tenant_id IS NOT DISTINCT FROM d.tenant_id
                AND h.version > d.version AND h.dead_at IS NULL AND h.quarantined_at IS NULL
              LIMIT 1000) behind) AS held
FROM {outbox} d
WHERE d.published_at IS NULL AND d.available_at = 'infinity' AND d.dead_at IS NOT NULL
  AND d.quarantined_at IS NULL
ORDER BY d.sequence DESC
LIMIT 50)sql";

// $1 the outbox, $2 the newest audit row that was seen; NULL = only see which it is.
constexpr char kNewReplays[] = R"sql(
WITH seen AS (SELECT coalesce($2::bigint, (SELECT max(id) FROM lockstep.outbox_audit), 0) AS id)
SELECT coalesce(max(a.id), (SELECT id FROM seen)) AS newest,
       count(*) FILTER (WHERE a.action = 'replay' AND a.outbox = lockstep.outbox_name($1::regclass)) AS replays
FROM lockstep.outbox_audit a
WHERE a.id > (SELECT id FROM seen))sql";

// The newest first.
absl::StatusOr<json> ReadNewestDead(postgres::Connection& connection, const std::string& outbox) {
  ASSIGN_OR_RETURN(const Result rows,
                   connection.Execute(FillNames(kNewestDead, {{"outbox", outbox}})));
  json newest = json::array();
  for (const Row row : rows) {
    newest.push_back({{"sequence", row.Int("sequence")},
                      {"event_id", row.Text("event_id")},
                      {"event_type", row.Text("event_type")},
                      {"aggregate_type", row.Text("aggregate_type")},
                      {"aggregate_id", row.Text("aggregate_id")},
                      {"version", row.Int("version")},
                      {"topic", row.Text("topic")},
                      {"code", row.Text("error_code")},
                      {"reason", row.Text("last_error")},
                      {"attempts", row.Int("attempts")},
                      {"dead_at", FormatTimestamp(row.Time("dead_at"))},
                      {"held", row.Int("held")}});
  }
  return newest;
}

}  // namespace

absl::StatusOr<OutboxRecord> ReadOutboxRecord(postgres::Connection& connection,
                                              const postgres::QualifiedName& table,
                                              std::optional<int64_t>& audit) {
  const std::string outbox = table.Quoted();
  ASSIGN_OR_RETURN(const Result backlog,
                   connection.Execute(FillNames(kBacklog, {{"outbox", outbox}}), kCountAtMost));
  ASSIGN_OR_RETURN(const Result dead,
                   connection.Execute(FillNames(kDeadCounts, {{"outbox", outbox}}), kCountAtMost));
  OutboxRecord record;
  record.known = true;
  record.pending = backlog[0].Int("pending");
  record.locked = backlog[0].Int("locked");
  record.oldest = Millis(backlog[0].Int("oldest_ms"));
  record.dead = dead[0].Int("dead");
  record.quarantined = dead[0].Int("quarantined");
  json newest = json::array();
  if (record.dead > 0) {
    ASSIGN_OR_RETURN(newest, ReadNewestDead(connection, outbox));
  }
  ASSIGN_OR_RETURN(const Result replays, connection.Execute(kNewReplays, outbox, audit));
  audit = replays[0].Int("newest");
  record.replays = replays[0].Int("replays");
  record.part = {{"pending", record.pending},
                 {"locked", record.locked},
                 {"oldest_ms", record.oldest.count()},
                 {"pending_is_at_least", record.pending >= kCountAtMost},
                 {"dead", record.dead},
                 {"quarantined", record.quarantined},
                 {"dead_rows", std::move(newest)}};
  return record;
}

}  // namespace lockstep::publisher
