#include "publisher/observe/relay_log.h"

#include "envelope/event.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "postgres/sql_error.h"

namespace lockstep::publisher {
namespace {

const log::Field kNone = log::IfAny("", "");

std::string_view Trace(const OutboxRow& row) {
  return row.traceparent ? envelope::TraceId(*row.traceparent) : std::string_view();
}

}  // namespace

std::string RelayLog::Tenant(const OutboxRow& row) const {
  if (!row.tenant_id.has_value()) return "";
  return mask_tenant_ ? "***" : *row.tenant_id;
}

void RelayLog::Write(void (*write)(std::string_view, log::Fields), std::string_view message,
                     std::string_view code, const OutboxRow& row, int attempts,
                     const std::array<log::Field, 3>& more) const {
  write(message, {{"code", code},
                  {"table", table_},
                  {"topic", row.topic},
                  {"event_id", row.event_id},
                  {"tenant_id", Tenant(row)},
                  {"sequence", row.sequence},
                  {"attempts", attempts},
                  log::IfAny("trace_id", Trace(row)),
                  more[0],
                  more[1],
                  more[2]});
}

void RelayLog::OnPublished(const OutboxRow& row, Millis dispatch) {
  if (log::CurrentLevel() > log::Level::kDebug) return;  // the fields cost more than the test
  Write(log::Debug, "published", "outbox_flush_success", row, row.attempts,
        {log::Field("ms", dispatch.count()), kNone, kNone});
}

void RelayLog::OnRetry(const OutboxRow& row, std::string_view code, Millis delay,
                       const std::string& error) {
  Write(log::Warning, "the row will be tried again", "outbox_flush_retry", row, row.attempts + 1,
        {log::Field("in", FormatDuration(delay)), {"error_code", code}, {"error", error}});
}

void RelayLog::OnDead(const OutboxRow& row, std::string_view code, const std::string& error) {
  Write(log::Error, "the row is dead", "outbox_flush_dead", row, row.attempts + 1,
        {log::Field("error_code", code), {"error", error}, kNone});
}

void RelayLog::OnOutage(const OutboxRow& row, std::string_view code, const absl::Status& why,
                        Millis pause) {
  Write(log::Warning, "the topic is out of reach; it is tried again", "outbox_flush_retry", row,
        row.attempts,
        {log::Field("in", FormatDuration(pause)), {"error_code", code}, {"error", why}});
}

void RelayLog::OnDedupHit(const OutboxRow& row, Millis dispatch) {
  Write(log::Info, "the bus had the event already", "outbox_flush_dedup_hit", row, row.attempts,
        {log::Field("ms", dispatch.count()), kNone, kNone});
}

void RelayLog::OnLostLease(const OutboxRow& row, const std::string& state) {
  Write(log::Warning, "the lease was lost; the row belongs to another", "outbox_flush_conflict",
        row, row.attempts, {log::Field("error_code", "STORAGE.CONFLICT"), {"state", state}, kNone});
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
