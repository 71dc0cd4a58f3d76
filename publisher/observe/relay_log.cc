#include "publisher/observe/relay_log.h"

#include "envelope/trace_context.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "postgres/sql_error.h"

namespace lockstep::publisher {
namespace {

std::string_view Trace(const OutboxRow& row) {
  return row.traceparent ? TraceId(*row.traceparent) : std::string_view();
}

}  // namespace

std::string RelayLog::Tenant(const OutboxRow& row) const {
  if (!row.tenant_id.has_value()) return "";
  return mask_tenant_ ? "***" : *row.tenant_id;
}

void RelayLog::Write(log::Level level, std::string_view message, std::string_view code,
                     const OutboxRow& row, int attempts, log::Fields more) const {
  std::vector<log::Field> fields = {{"code", code},
                                    {"table", table_},
                                    {"topic", row.topic},
                                    {"event_id", row.event_id},
                                    {"tenant_id", Tenant(row)},
                                    {"sequence", row.sequence},
                                    {"attempts", attempts},
                                    log::IfAny("trace_id", Trace(row))};
  fields.insert(fields.end(), more);
  log::Write(level, message, fields);
}

void RelayLog::OnPublished(const OutboxRow& row, Millis dispatch) {
  if (log::CurrentLevel() > log::Level::kDebug) return;  // the fields cost more than the test
  Write(log::Level::kDebug, "published", "outbox_flush_success", row, row.attempts,
        {{"ms", dispatch.count()}});
}

void RelayLog::OnRetry(const OutboxRow& row, std::string_view code, Millis delay,
                       const std::string& error) {
  Write(log::Level::kWarning, "the row will be tried again", "outbox_flush_retry", row,
        row.attempts + 1, {{"in", FormatDuration(delay)}, {"error_code", code}, {"error", error}});
}

void RelayLog::OnDead(const OutboxRow& row, std::string_view code, const std::string& error) {
  Write(log::Level::kError, "the row is dead", "outbox_flush_dead", row, row.attempts + 1,
        {{"error_code", code}, {"error", error}});
}

void RelayLog::OnOutage(const OutboxRow& row, std::string_view code, const absl::Status& why,
                        Millis pause) {
  Write(log::Level::kWarning, "the topic is out of reach; it is tried again", "outbox_flush_retry",
        row, row.attempts, {{"in", FormatDuration(pause)}, {"error_code", code}, {"error", why}});
}

void RelayLog::OnDedupHit(const OutboxRow& row, Millis dispatch) {
  Write(log::Level::kInfo, "the bus had the event already", "outbox_flush_dedup_hit", row,
        row.attempts, {{"ms", dispatch.count()}});
}

void RelayLog::OnLostLease(const OutboxRow& row, const std::string& state) {
  Write(log::Level::kWarning, "the lease was lost; the row belongs to another",
        "outbox_flush_conflict", row, row.attempts,
        {{"error_code", "STORAGE.CONFLICT"}, {"state", state}});
}

void RelayLog::OnDatabaseError(const absl::Status& error) {
  const bool timeout = postgres::SqlState(error) == "57014";
  log::Warning("the outbox is out of reach; it is tried again",
               {{"code", timeout ? "outbox_flush_db_timeout" : "outbox_flush_db_error"},
                {"table", table_},
                {"error", error}});
}

void RelayLog::OnShards(const std::vector<int>& held, int of) {
  log::Info("shards", {{"table", table_}, {"held", held.size()}, {"of", of}});
}

}  // namespace lockstep::publisher
