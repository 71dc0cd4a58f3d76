#include "sagas/orchestrator/status_reporter.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "platform/duration.h"
#include "platform/log/masking.h"
#include "platform/status.h"
#include "platform/text.h"
#include "sagas/orchestrator/observer.h"
#include "sagas/orchestrator/saga_watch.h"
#include "sagas/store/desk.h"

namespace lockstep::sagas {
namespace {

constexpr int kMostSagas = 200;
// Who has asked for anything within this time is looking.
constexpr Millis kLooks{30'000};

HttpResponse Answer(const absl::StatusOr<Json>& answered) {
  if (!answered.ok()) {
    const bool gone = absl::IsNotFound(answered.status());
    const bool wrong = absl::IsInvalidArgument(answered.status());
    return {.status = gone ? 404 : (wrong ? 400 : 503),
            .body = std::string(MessageOf(answered.status())) + "\n"};
  }
  // Masking knows the other kind of JSON.
  nlohmann::json document = nlohmann::json::parse(answered->dump());
  if (KeysAreMasked()) web::Mask(document);
  return {.content_type = "application/json; charset=utf-8",
          .body = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

std::string Value(const HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? "" : found->second;
}

absl::StatusOr<Json> List(postgres::Connection& session, const HttpRequest& request) {
  SagaFilter filter;
  filter.definition = Value(request, "definition");
  filter.after = Value(request, "after");
  filter.dead = Value(request, "dead") == "true";
  if (const std::string state = Value(request, "state"); !state.empty()) {
    const auto parsed = ParseSagaState(state);
    if (!parsed) return InvalidArgument("'{}' is no saga's state", Truncate(state, 40));
    filter.states = {*parsed};
  }
  if (const std::string limit = Value(request, "limit"); !limit.empty()) {
    if (!ParseWhole(limit, &filter.limit) || filter.limit < 1 || filter.limit > kMostSagas) {
      return InvalidArgument("limit is a whole number from 1 to {}", kMostSagas);
    }
  }
  ASSIGN_OR_RETURN(const auto sagas, ListSagas(session, filter));
  Json list = Json::array();
  for (const StoredSaga& saga : sagas) list.push_back(saga.ToJson());
  return Json{{"sagas", std::move(list)}};
}

absl::StatusOr<Json> Show(postgres::Connection& session, const std::string& id) {
  ASSIGN_OR_RETURN(const StoredSaga saga, ShowSaga(session, id));
  ASSIGN_OR_RETURN(const auto audit, AuditOf(session, id));
  Json json = saga.ToJson();
  json["audit"] = Json::array();
  for (const SagaAudit& entry : audit) {
    json["audit"].push_back({{"at", FormatTimestamp(entry.at)},
                             {"step", entry.step},
                             {"actor", entry.actor},
                             {"role", entry.role},
                             {"action", entry.action},
                             {"from", entry.from},
                             {"to", entry.to},
                             {"attempts", entry.attempts ? Json(*entry.attempts) : Json(nullptr)},
                             {"note", entry.note}});
  }
  return json;
}

// One that waits for a person, and what he needs to know to help it.
nlohmann::json Waiting(const StoredSaga& saga) {
  nlohmann::json in_doubt = nlohmann::json::array();
  for (const StoredStep& step : saga.steps) {
    if (step.in_doubt) in_doubt.push_back(step.name);
  }
  const bool knows_step =
      saga.failed_step && static_cast<size_t>(*saga.failed_step) < saga.steps.size();
  return {{"id", saga.id},
          {"definition", saga.definition},
          {"state", Name(saga.state)},
          {"dead", saga.dead_at.has_value()},
          {"since", FormatTimestamp(saga.dead_at.value_or(saga.updated_at))},
          {"reason", saga.reason},
          {"error", saga.error},
          {"error_code", saga.error_code},
          {"failed_step",
           knows_step ? saga.steps[static_cast<size_t>(*saga.failed_step)].name : std::string()},
          {"in_doubt", std::move(in_doubt)}};
}

}  // namespace

StatusReporter::StatusReporter(SagaOrchestrator& orchestrator, RunningConfig config,
                               MetricsRegistry& metrics, HttpServer& http)
    : orchestrator_(orchestrator),
      daemon_("orchestrator", orchestrator.options().instance, std::move(config), metrics),
      database_(orchestrator.options().engine.database, Clock::System().Now()),
      page_(http, [this] { return Compose(); }) {
  http.HandleLater("/api/sagas", [this](const HttpRequest& request, const HttpReply& reply) {
    AnswerSagas(request, reply);
  });
}

void StatusReporter::AnswerSagas(const HttpRequest& request, const HttpReply& reply) {
  const bool asked = orchestrator_.watch().Ask([request, reply](const auto& session) {
    if (reply.Gone()) return;
    if (!session.ok()) return reply.Send(Answer(session.status()));
    const std::string id = Value(request, "id");
    reply.Send(Answer(id.empty() ? List(**session, request) : Show(**session, id)));
  });
  if (!asked) reply.Send({.status = 429, .body = "too many requests wait; ask again later\n"});
}

nlohmann::json StatusReporter::Compose() {
  const WallTime now = Clock::System().Now();
  SagaWatch& watch = orchestrator_.watch();
  if (page_.AskedWithin(kLooks)) watch.Watched(kLooks);
  if (const WallTime read_at = watch.read_at(); read_at != WallTime()) {
    const std::string error = watch.error();
    database_.Done(error, error.empty() ? read_at : now);
    // Until the next count is due, the last one is good enough.
    const Millis due = orchestrator_.options().backlog_interval;
    if (error.empty() && web::AgeMs(read_at, now) <= due.count()) database_.Skipped(now);
  }
  nlohmann::json document = daemon_.Head(orchestrator_.NotReady(), database_, now);
  document["ctl"] = "lockstepctl --database '" + database_.address() + "'";
  document["in_hand"] = orchestrator_.in_hand();
  document["sagas"] = Sagas(now);
  document["waiting"] = nlohmann::json::array();
  for (const StoredSaga& saga : watch.waiting()) document["waiting"].push_back(Waiting(saga));
  return document;
}

nlohmann::json StatusReporter::Sagas(WallTime now) {
  const std::vector<SagaCounts> counts = orchestrator_.watch().counts();
  std::map<std::string, Observer::Totals> totals;
  for (Observer::Totals& of : orchestrator_.observer().totals()) totals[of.definition] = of;
  std::vector<web::History::Part> parts;
  for (const SagaCounts& of : counts) {
    const Observer::Totals& done = totals[of.definition];
    parts.push_back({of.definition,
                     static_cast<double>(done.completed + done.failed + done.cancelled),
                     static_cast<double>(of.running + of.compensating)});
  }
  history_.Add(now, parts);
  nlohmann::json sagas = nlohmann::json::array();
  for (const SagaCounts& of : counts) {
    const Observer::Totals& done = totals[of.definition];
    sagas.push_back({{"definition", of.definition},
                     {"running", of.running},
                     {"compensating", of.compensating},
                     {"paused", of.paused},
                     {"dead", of.dead},
                     {"quarantined", of.quarantined},
                     {"due_for_ms", of.due_for.count()},
                     {"rate", web::Rounded(history_.Of(of.definition).rate)},
                     {"since_start",
                      {{"started", done.started},
                       {"completed", done.completed},
                       {"failed", done.failed},
                       {"cancelled", done.cancelled},
                       {"compensated", done.compensated}}}});
  }
  return sagas;
}

}  // namespace lockstep::sagas
