#include "runner/lane/lane_recorder.h"

#include <chrono>
#include <utility>

#include "envelope/event.h"
#include "platform/duration.h"
#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "runner/lane/shown_error.h"

namespace lockstep::runner {
namespace {

std::string_view Trace(const Inbound& item) {
  const auto found = item.event.attributes.find("traceparent");
  return found == item.event.attributes.end() ? std::string_view()
                                              : envelope::TraceId(found->second);
}

}  // namespace

void LaneRecorder::OnCommitted(std::span<Inbound* const> items, const BatchResult& result) {
  const WallTime now = Clock::System().Now();
  const auto took = Clock::System().Steady() - result.began;
  std::vector<pubsub::AckToken> tokens;
  tokens.reserve(items.size());
  const Inbound* const newest = NewestOf(items);
  for (size_t i = 0; i < items.size(); ++i) {
    Inbound& item = *items[i];
    LogFate(item, result.fates[i]);
    if (result.fates[i] == Fate::kSuperseded) NoteIfItWentBack(item);
    tokens.push_back(std::exchange(item.token, {}));
  }
  for (const auto& [item, fate] : result.unparked) LogFate(*item, fate);
  if (result.overtaken > 0) {
    log::Info("snapshots came past dead letters: nothing waits for them any longer",
              {{"group", group_.options.name}, {"dead_letters", result.overtaken}});
  }
  acks_.Ack(std::move(tokens), result.commit_began);
  group_.metrics.Committed(items, result, newest, now, std::chrono::duration<double>(took).count());
  {
    std::lock_guard lock(mu_);
    status_.last_commit = now;  // of parked events that were released, too
    status_.last_error.clear();
    status_.waits_for.clear();
    status_.outage.clear();
    if (newest != nullptr) status_.last_message_id = newest->message_id.value();
  }
  if (newest == nullptr) return;
  if (RestoreWitness* const witness = group_.offset_witness()) {
    witness->Committed(under_, status_.lane);
  }
  if (log::CurrentLevel() != log::Level::kDebug) return;  // the fields cost more than the test
  log::Debug("offset saved", {{"group", group_.options.name},
                              {"message_id", newest->message_id},
                              {"lag_ms", duration_cast<Millis>(now - newest->publish_time).count()},
                              {"updated_by", group_.environment.instance}});
}

// The inbox knew nothing of it (or it would be a duplicate), its key keeps the order of publishing,
// and no replay brings what was published since the epoch began: it was published after the version
// that supersedes it.
void LaneRecorder::NoteIfItWentBack(const Inbound& item) const {
  if (item.ordering_key.empty() || item.publish_time < under_.began) return;
  log::Warning("a new event is older than what is applied; it changed nothing",
               {{"group", group_.options.name},
                {"message_id", item.message_id},
                {"event_id", item.event.event_id},
                {"ordering_key", item.ordering_key},
                log::IfAny("trace_id", Trace(item)),
                {"version", item.event.version}});
  group_.metrics.Count({.went_back = 1});
}

void LaneRecorder::OnGivenBack(std::span<Inbound* const> items) {
  std::vector<pubsub::AckToken> tokens;
  for (Inbound* item : items) {
    // Where the dead letters are the bus's own.
    if (item->poison) LogPoison("given back: it can't be applied", *item);
    tokens.push_back(std::exchange(item->token, {}));
  }
  acks_.GiveBack(std::move(tokens));
}

void LaneRecorder::OnFailure(const absl::Status& status, std::span<Inbound* const> items,
                             const std::string& waits_for) {
  // A release saves no offset.
  group_.metrics.Count({.failures = 1, .offsets_failed = items.empty() ? 0 : 1});
  if (state::IsStaleEpoch(status)) return;
  LogFailure(status, items, waits_for);
  std::lock_guard lock(mu_);
  status_.last_error = MessageOf(status);
  status_.waits_for = waits_for;
}

void LaneRecorder::OnOutage(std::span<Inbound* const> items, const std::string& reason,
                            Millis pause) {
  log::Fault("a handler does not accept events now", {{"group", group_.options.name},
                                                      {"lane", status_.lane},
                                                      {"messages", items.size()},
                                                      {"again_in", FormatDuration(pause)},
                                                      {"error", reason}});
  std::lock_guard lock(mu_);
  status_.last_error = status_.outage = reason;
}

LaneStatus LaneRecorder::status() const {
  std::lock_guard lock(mu_);
  return status_;
}

void LaneRecorder::LogPoison(std::string_view what, const Inbound& item) const {
  log::Warning(what, {{"group", group_.options.name},
                      {"message_id", item.message_id},
                      {"event_id", item.event.event_id},
                      {"ordering_key", item.ordering_key},
                      log::IfAny("trace_id", Trace(item)),
                      {"code", item.poison ? item.poison->code : ""},
                      {"reason", item.poison ? item.poison->reason : ""}});
}

// A dead letter is a warning; the others are told when debugging.
void LaneRecorder::LogFate(const Inbound& item, Fate fate) const {
  if (Dies(fate)) return LogPoison("dead letter", item);
  if (log::CurrentLevel() != log::Level::kDebug) return;  // the fields cost more than the test
  log::Debug("committed", {{"group", group_.options.name},
                           {"message_id", item.message_id},
                           {"event_id", item.event.event_id},
                           {"ordering_key", item.ordering_key},
                           log::IfAny("trace_id", Trace(item)),
                           {"ending", Name(fate)}});
}

void LaneRecorder::LogFailure(const absl::Status& status, std::span<Inbound* const> items,
                              const std::string& waits_for) const {
  // A batch of many names nobody: it is tried again, down to the one message at fault.
  const Inbound none{};
  const Inbound& one = items.size() == 1 ? *items.front() : none;
  // One that an event is to blame for is told with the event; others come to all alike.
  const bool blames =
      items.size() == 1 && postgres::Classify(status) == postgres::ErrorClass::kData;
  (blames ? log::Warning : log::Fault)("a transaction failed",
                                       {{"group", group_.options.name},
                                        {"lane", status_.lane},
                                        {"messages", items.size()},
                                        log::IfAny("message_id", one.message_id),
                                        log::IfAny("event_id", one.event.event_id),
                                        log::IfAny("ordering_key", one.ordering_key),
                                        log::IfAny("trace_id", Trace(one)),
                                        {"class", postgres::Name(postgres::Classify(status))},
                                        {"sqlstate", postgres::SqlState(status)},
                                        log::IfAny("waits_for", waits_for),
                                        {"error", ShownError(status)}});
}

}  // namespace lockstep::runner
