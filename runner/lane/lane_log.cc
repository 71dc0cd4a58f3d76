#include "runner/lane/lane_log.h"

#include "envelope/trace_context.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::runner {
namespace {

std::string_view Name(Fate fate) {
  switch (fate) {
    case Fate::kApplied:
      return "applied";
    case Fate::kSuperseded:
      return "superseded";
    case Fate::kIgnored:
      return "ignored";
    case Fate::kDuplicate:
      return "duplicate";
    case Fate::kWaitsForPredecessor:
    case Fate::kWaitsForDeadLetter:
      return "parked";
    case Fate::kDead:
    case Fate::kDeadAndBlocking:
      break;
  }
  return "dead";
}

std::string_view Trace(const Inbound& item) {
  const auto found = item.event.attributes.find("traceparent");
  return found == item.event.attributes.end() ? std::string_view() : TraceId(found->second);
}

void LogPoison(std::string_view what, const std::string& group, const Inbound& item) {
  log::Warning(what, {{"group", group},
                      {"message_id", item.message_id},
                      {"event_id", item.event.event_id},
                      {"ordering_key", item.ordering_key},
                      log::IfAny("trace_id", Trace(item)),
                      {"code", item.poison ? item.poison->code : ""},
                      {"reason", item.poison ? item.poison->reason : ""}});
}

}  // namespace

void LogFate(const std::string& group, const Inbound& item, Fate fate) {
  if (Dies(fate)) {
    LogPoison("dead letter", group, item);
  } else if (log::CurrentLevel() == log::Level::kDebug) {  // the fields cost more than the test
    log::Debug("committed", {{"group", group},
                             {"message_id", item.message_id},
                             {"event_id", item.event.event_id},
                             {"ordering_key", item.ordering_key},
                             log::IfAny("trace_id", Trace(item)),
                             {"ending", Name(fate)}});
  }
}

void LogGivenBack(const std::string& group, const Inbound& item) {
  LogPoison("given back: it can't be applied", group, item);
}

void LogOffsetSaved(const std::string& group, const Inbound& newest, Millis lag,
                    const std::string& by) {
  if (log::CurrentLevel() != log::Level::kDebug) return;
  log::Debug("offset saved", {{"group", group},
                              {"message_id", newest.message_id},
                              {"lag_ms", lag.count()},
                              {"updated_by", by}});
}

void LogFailure(const std::string& group, int lane, const absl::Status& status,
                std::span<Inbound* const> items) {
  // A batch of many names nobody: it is tried again, down to the one message at fault.
  const Inbound none{};
  const Inbound& one = items.size() == 1 ? *items.front() : none;
  log::Warning("a transaction failed", {{"group", group},
                                        {"lane", lane},
                                        {"messages", items.size()},
                                        log::IfAny("message_id", one.message_id),
                                        log::IfAny("event_id", one.event.event_id),
                                        log::IfAny("ordering_key", one.ordering_key),
                                        log::IfAny("trace_id", Trace(one)),
                                        {"class", postgres::Name(postgres::Classify(status))},
                                        {"sqlstate", postgres::SqlState(status)},
                                        {"error", status}});
}

}  // namespace lockstep::runner
