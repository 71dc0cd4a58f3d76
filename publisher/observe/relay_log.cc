#include "publisher/observe/relay_log.h"

#include <algorithm>
#include <iterator>

#include "envelope/event.h"
#include "platform/duration.h"
#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "postgres/sql_error.h"

namespace lockstep::publisher {
namespace {

using Kind = RowEvent::Kind;

// What a row's events are called in the log; what is not here is not told.
struct Line {
  Kind kind;
  void (*write)(std::string_view, log::Fields);
  std::string_view message;
  std::string_view code;
};
constexpr Line kLines[] = {
    {Kind::kPublished, log::Debug, "published", "outbox_flush_success"},
    {Kind::kKnown, log::Info, "the bus had the event already", "outbox_flush_known"},
    {Kind::kDedupHit, log::Info, "its content was sent to the space already; it is not sent again",
     "outbox_flush_dedup_hit"},
    {Kind::kRetry, log::Warning, "the row will be tried again", "outbox_flush_retry"},
    {Kind::kUnblamed, log::Warning,
     "the row will be tried again, and dies only when others of its topic pass; lockstepctl outbox "
     "quarantine puts it aside",
     "outbox_flush_retry"},
    {Kind::kDead, log::Error, "the row is dead", "outbox_flush_dead"},
    {Kind::kOutage, log::Fault, "the topic is out of reach; it is tried again",
     "outbox_flush_retry"},
    {Kind::kLostLease, log::Warning, "the lease was lost; the row belongs to another",
     "outbox_flush_conflict"},
};

// A field that only some lines have.
template <typename T>
log::Field If(bool wanted, std::string_view key, const T& value) {
  return wanted ? log::Field(key, value) : log::IfAny(key, "");
}

}  // namespace

void RelayLog::OnRow(const RowEvent& event) {
  const auto& [kind, row, took, wait, code, error, message_id, state] = event;
  // The fields cost more than the test.
  if (kind == Kind::kPublished && log::CurrentLevel() > log::Level::kDebug) return;
  const Line* const line = std::ranges::find(kLines, kind, &Line::kind);
  if (line == std::end(kLines)) return;
  const bool published =
      kind == Kind::kPublished || kind == Kind::kKnown || kind == Kind::kDedupHit;
  const bool spent = kind == Kind::kRetry || kind == Kind::kDead;
  const bool outage = kind == Kind::kOutage || kind == Kind::kUnblamed;
  const std::string_view tenant = row.tenant_id ? *row.tenant_id : std::string_view();
  line->write(line->message,
              {{"code", line->code},
               {"table", table_},
               {"topic", row.topic},
               {"event_id", row.event_id},
               {"message_id", message_id},
               {"ordering_key", row.aggregate_id},
               {"tenant_id", tenant},
               {"sequence", row.sequence},
               {"attempts", row.attempts + (spent ? 1 : 0)},
               log::IfAny("trace_id", row.traceparent ? envelope::TraceId(*row.traceparent)
                                                      : std::string_view()),
               If(published, "ms", took.count()),
               If(kind == Kind::kRetry || outage, "in", FormatDuration(wait)),
               If(!published, "error_code", code),
               If(spent || outage, "error", kind == Kind::kOutage ? error : UnlessMasked(error)),
               If(kind == Kind::kLostLease, "state", state)});
}

void RelayLog::OnDatabaseError(const absl::Status& error) {
  const bool timeout = postgres::SqlState(error) == "57014";
  log::Fault("the outbox is out of reach; it is tried again",
             {{"code", timeout ? "outbox_flush_db_timeout" : "outbox_flush_db_error"},
              {"table", table_},
              {"error", error}});
}

void RelayLog::OnGone(int64_t rows) {
  log::Error(
      "the outbox went back: rows that were published are gone, and their versions must not be "
      "given to other events; outbox_audit names them, docs/failover.md says what to do",
      {{"code", "outbox_flush_gone"}, {"table", table_}, {"rows", rows}});
}

void RelayLog::OnShards(const std::vector<int>& held, int of) {
  log::Info("shards", {{"table", table_}, {"held", held.size()}, {"of", of}});
}

}  // namespace lockstep::publisher
