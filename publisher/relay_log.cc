#include "publisher/relay_log.h"

#include "platform/duration.h"
#include "platform/log.h"
#include "platform/trace_context.h"
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

void RelayLog::OnPublished(const OutboxRow& row, Millis dispatch) {
  if (log::CurrentLevel() > log::Level::kDebug) return;  // the fields cost more than the test
  log::Debug("published", {{"code", "outbox_flush_success"},
                           {"table", table_},
                           {"topic", row.topic},
                           {"event_id", row.event_id},
                           {"tenant_id", Tenant(row)},
                           {"sequence", row.sequence},
                           {"attempts", row.attempts},
                           log::IfAny("trace_id", Trace(row)),
                           {"ms", dispatch.count()}});
}

void RelayLog::OnRetry(const OutboxRow& row, std::string_view code, Millis delay,
                       const std::string& error) {
  log::Warning("the row will be tried again", {{"code", "outbox_flush_retry"},
                                               {"table", table_},
                                               {"topic", row.topic},
                                               {"event_id", row.event_id},
                                               {"tenant_id", Tenant(row)},
                                               {"sequence", row.sequence},
                                               {"attempts", row.attempts + 1},
                                               log::IfAny("trace_id", Trace(row)),
                                               {"in", FormatDuration(delay)},
                                               {"error_code", code},
                                               {"error", error}});
}

void RelayLog::OnDead(const OutboxRow& row, std::string_view code, const std::string& error) {
  log::Error("the row is dead", {{"code", "outbox_flush_dead"},
                                 {"table", table_},
                                 {"topic", row.topic},
                                 {"event_id", row.event_id},
                                 {"tenant_id", Tenant(row)},
                                 {"sequence", row.sequence},
                                 {"attempts", row.attempts + 1},
                                 log::IfAny("trace_id", Trace(row)),
                                 {"error_code", code},
                                 {"error", error}});
}

void RelayLog::OnOutage(const OutboxRow& row, std::string_view code, const absl::Status& why,
                        Millis pause) {
  log::Warning("the topic is out of reach; it is tried again", {{"code", "outbox_flush_retry"},
                                                                {"table", table_},
                                                                {"topic", row.topic},
                                                                {"event_id", row.event_id},
                                                                {"tenant_id", Tenant(row)},
                                                                {"sequence", row.sequence},
                                                                {"attempts", row.attempts},
                                                                log::IfAny("trace_id", Trace(row)),
                                                                {"in", FormatDuration(pause)},
                                                                {"error_code", code},
                                                                {"error", why}});
}

void RelayLog::OnDedupHit(const OutboxRow& row, Millis dispatch) {
  log::Info("the bus had the event already", {{"code", "outbox_flush_dedup_hit"},
                                              {"table", table_},
                                              {"topic", row.topic},
                                              {"event_id", row.event_id},
                                              {"tenant_id", Tenant(row)},
                                              {"sequence", row.sequence},
                                              {"attempts", row.attempts},
                                              log::IfAny("trace_id", Trace(row)),
                                              {"ms", dispatch.count()}});
}

void RelayLog::OnLostLease(const OutboxRow& row, const std::string& state) {
  log::Warning("the lease was lost; the row belongs to another",
               {{"code", "outbox_flush_conflict"},
                {"error_code", "STORAGE.CONFLICT"},
                {"table", table_},
                {"topic", row.topic},
                {"event_id", row.event_id},
                {"tenant_id", Tenant(row)},
                {"sequence", row.sequence},
                {"attempts", row.attempts},
                log::IfAny("trace_id", Trace(row)),
                {"state", state}});
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
