#include "publisher/outbox/outbox_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::publisher {
namespace {

using nlohmann::json;
using postgres::Params;
using postgres::Result;

constexpr int64_t kCountAtMost = 1'000'000;
constexpr int kCostLimit = 50;  // a count that took t is not repeated before 50 t have gone by

// {0} the outbox.
constexpr char kBacklog[] = R"sql(
SELECT count(*), count(lock_token),
       coalesce(extract(epoch FROM now() - min(created_at) FILTER (WHERE available_at < 'infinity')) * 1000, 0)::bigint
  FROM (SELECT lock_token, created_at, available_at FROM {0}
         WHERE published_at IS NULL AND dead_at IS NULL AND quarantined_at IS NULL
         LIMIT $1::bigint) pending)sql";

constexpr char kDeadCounts[] = R"sql(
SELECT count(*) FILTER (WHERE quarantined_at IS NULL), count(quarantined_at)
  FROM (SELECT quarantined_at FROM {0}
         WHERE published_at IS NULL AND available_at = 'infinity'
           AND (dead_at IS NOT NULL OR quarantined_at IS NOT NULL)
         LIMIT $1::bigint) dead)sql";

constexpr char kDead[] = R"sql(
SELECT d.sequence, d.event_id, d.event_type, d.aggregate_type, d.aggregate_id, d.version, d.topic,
       d.error_code, d.last_error, d.attempts, d.dead_at,
       (SELECT count(*) FROM (SELECT 1 FROM {0} h
          WHERE h.published_at IS NULL AND h.aggregate_id = d.aggregate_id
            AND h.aggregate_type = d.aggregate_type AND h.tenant_id IS NOT DISTINCT FROM d.tenant_id
            AND h.version > d.version AND h.dead_at IS NULL AND h.quarantined_at IS NULL
          LIMIT 1000) held)
  FROM {0} d
 WHERE d.published_at IS NULL AND d.available_at = 'infinity' AND d.dead_at IS NOT NULL
   AND d.quarantined_at IS NULL
 ORDER BY d.sequence DESC LIMIT 50)sql";

std::string For(const char* sql, const std::string& table) {
  return fmt::format(fmt::runtime(sql), table);
}

}  // namespace

struct OutboxReader::Table {
  SteadyTime next;
  json part = json::object();
  OutboxRecord record;
};

OutboxReader::OutboxReader(const std::string& database)
    : options_{.url = database,
               .application_name = "lockstep-publisher status",
               .statement_timeout = Millis(5'000)} {}

absl::StatusOr<postgres::Connection*> OutboxReader::Session() {
  if (session_ && !session_->broken()) return session_.get();
  session_.reset();
  ASSIGN_OR_RETURN(session_, postgres::Connection::Open(options_));
  return session_.get();
}

absl::StatusOr<json> OutboxReader::Read(const std::string& name, OutboxRecord& record) {
  std::shared_ptr<Table>& table = tables_[name];
  if (table == nullptr) table = std::make_shared<Table>();
  const SteadyTime began = Clock::System().Steady();
  ASSIGN_OR_RETURN(postgres::Connection* const session, Session());
  if (began < table->next) {
    // Too early to count again, yet the database should be known to answer.
    RETURN_IF_ERROR(session->Execute("SELECT 1").status());
    record = table->record;
    return table->part;
  }
  ASSIGN_OR_RETURN(const auto qualified, postgres::QualifiedName::Parse(name));
  const std::string quoted = qualified.Quoted();
  ASSIGN_OR_RETURN(const Result backlog, session->Execute(For(kBacklog, quoted), kCountAtMost));
  record.pending = backlog.Int(0, 0);
  record.locked = backlog.Int(0, 1);
  record.oldest = Millis(std::max<int64_t>(0, backlog.Int(0, 2)));
  json part = {{"pending", record.pending},
               {"locked", record.locked},
               {"oldest_ms", record.oldest.count()},
               {"pending_is_at_least", record.pending >= kCountAtMost}};
  RETURN_IF_ERROR(ReadDead(*session, quoted, part, record));
  const SteadyTime now = Clock::System().Steady();
  table->next = now + kCostLimit * (now - began);
  table->part = part;
  table->record = record;
  return part;
}

absl::Status OutboxReader::ReadDead(postgres::Connection& session, const std::string& quoted,
                                    json& part, OutboxRecord& record) {
  ASSIGN_OR_RETURN(const Result counts, session.Execute(For(kDeadCounts, quoted), kCountAtMost));
  record.dead = counts.Int(0, 0);
  record.quarantined = counts.Int(0, 1);
  part["dead"] = record.dead;
  part["quarantined"] = record.quarantined;
  part["dead_rows"] = json::array();
  if (record.dead == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Result rows, session.Execute(For(kDead, quoted)));
  for (int i = 0; i < rows.rows(); ++i) {
    const auto text = [&](int column) { return std::string(rows.Text(i, column)); };
    part["dead_rows"].push_back({{"sequence", rows.Int(i, 0)},
                                 {"event_id", text(1)},
                                 {"event_type", text(2)},
                                 {"aggregate_type", text(3)},
                                 {"aggregate_id", text(4)},
                                 {"version", rows.Int(i, 5)},
                                 {"topic", text(6)},
                                 {"code", text(7)},
                                 {"reason", text(8)},
                                 {"attempts", rows.Int(i, 9)},
                                 {"dead_at", FormatTimestamp(rows.Time(i, 10))},
                                 {"held", rows.Int(i, 11)}});
  }
  return absl::OkStatus();
}

}  // namespace lockstep::publisher
