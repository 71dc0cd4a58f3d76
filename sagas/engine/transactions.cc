#include "sagas/engine/transactions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/status.h"
#include "postgres/cancel_on_stop.h"
#include "postgres/identifier.h"
#include "sagas/definition/request_template.h"
#include "sagas/engine/sql_outcome.h"
#include "sagas/engine/step_call.h"

namespace lockstep::sagas {
namespace {

SteadyTime Now() { return Clock::System().Steady(); }
double SecondsSince(SteadyTime began) {
  return std::chrono::duration<double>(Now() - began).count();
}

// The state that the saga ends in with this step, if nothing else is left to do or to be said.
std::optional<SagaState> EndOf(const Held& held, const StoredStep& last) {
  StoredSaga after = held.saga;
  after.steps[static_cast<size_t>(last.step)] = last;
  const Decision then = Decide(*held.definition, after, held.Now(), held.StepsHere());
  if (!then.steps.empty() || !then.saga || !then.saga->reason.empty() ||
      !then.saga->error.empty()) {
    return std::nullopt;
  }
  after.state = then.saga->state;
  return after.ended() ? std::optional(after.state) : std::nullopt;
}

// 0 = the session's.
Millis LimitOf(const Action& action) {
  if (action.timeout == kStatementTimeout) return Millis(0);
  return action.timeout == Millis(0) ? kLongestSql : std::min(action.timeout, kLongestSql);
}

publisher::NewEvent EventFor(const Held& held, const Decision::Begin& begin, const Action& action,
                             const Json& request, int64_t version) {
  const std::string& name = held.saga.steps[static_cast<size_t>(begin.step)].name;
  publisher::NewEvent event;
  event.topic = action.target;
  event.aggregate_type = "saga";
  event.aggregate_id = held.id;
  event.event_type = action.event_type;
  if (event.event_type.empty()) {
    event.event_type =
        fmt::format("{}.{}{}", held.saga.definition, name, begin.undo ? ".compensate" : "");
    std::ranges::replace(event.event_type, '-', '_');  // a name as in protobuf
  }
  event.version = version;
  event.payload = request.dump();
  event.content_type = "application/json";
  event.tenant_id = held.saga.tenant;
  event.attributes = {
      {"saga", held.id}, {"saga_definition", held.saga.definition}, {"saga_step", name}};
  event.traceparent = held.saga.traceparent;
  event.tracestate = held.saga.tracestate;
  return event;
}

}  // namespace

absl::Status Transactions::Run(Held& held, const Decision::Begin& begin) {
  const Action& action = ActionOf(*held.definition, begin.step, begin.undo);
  const auto request = FillRequest(action.request, ContextOf(held.saga));
  if (!request.ok()) {
    return saver_.SaveTry(held, Beginning(held, begin.step, begin.undo),
                          Outcome::Refused(kRequestCode, std::string(MessageOf(request.status()))),
                          0);
  }
  return action.kind == ActionKind::kSql ? RunSql(held, begin, *request)
                                         : RunBus(held, begin, *request);
}

absl::Status Transactions::RunSql(Held& held, const Decision::Begin& begin, const Json& request) {
  const SteadyTime began = Now();
  const Action& action = ActionOf(*held.definition, begin.step, begin.undo);
  const StoredStep step = Beginning(held, begin.step, begin.undo);
  const auto function = postgres::QualifiedName::Parse(action.target);
  if (!function.ok()) {
    return saver_.SaveTry(
        held, step, Outcome::Refused(kRequestCode, std::string(MessageOf(function.status()))), 0);
  }
  StoredStep next = AfterTry(step, action, Outcome::Done(Json()), held.Now(), 0, 0);
  const std::optional<SagaState> ends = EndOf(held, next);
  parts_.Seam("sql");
  const postgres::CancelOnStop cancel(parts_.stop.get_token(), parts_.options.database,
                                      session_.connection().backend_pid());
  auto result = session_.store().CallAndSave(held.lease, function->Quoted(), request.dump(), next,
                                             step.state, ends, LimitOf(action));
  parts_.Seam("sql is done");
  if (!result.ok()) return Failed(held, step, result.status(), began);
  held.later.erase(begin.step);
  if (!begin.undo) next.result = *std::move(result);
  held.saga.steps[static_cast<size_t>(begin.step)] = next;
  parts_.events.OnTry(held.saga, next, Outcome::Done(Json()), SecondsSince(began));
  if (!ends) return absl::OkStatus();
  const SagaState was = std::exchange(held.saga.state, *ends);
  parts_.events.OnState(held.saga, was);
  return absl::OkStatus();
}

absl::Status Transactions::RunBus(Held& held, const Decision::Begin& begin, const Json& request) {
  const SteadyTime began = Now();
  const Action& action = ActionOf(*held.definition, begin.step, begin.undo);
  const StoredStep step = Beginning(held, begin.step, begin.undo);
  StoredStep next = AfterTry(step, action, Outcome::Done(Json()), held.Now(), 0, 0);
  if (action.reply) {
    next.state = StepState::kInFlight;
    if (action.timeout > Millis(0)) next.deadline = held.Now() + action.timeout;
  }
  const absl::Status sent = [&]() -> absl::Status {
    parts_.Seam("hold to send");
    ASSIGN_OR_RETURN(auto transaction, session_.store().Hold(held.lease));
    parts_.Seam("the event's version");
    ASSIGN_OR_RETURN(const int64_t version, WorkStore::NextVersion(transaction, held.id));
    parts_.Seam("enqueue");
    RETURN_IF_ERROR(publisher::Enqueue(transaction, held.definition->outbox,
                                       EventFor(held, begin, action, request, version))
                        .status());
    parts_.Seam("save the sent step");
    RETURN_IF_ERROR(WorkStore::Save(transaction, held.id, next, step.state));
    parts_.Seam("commit the event");
    return transaction.Commit();
  }();
  if (!sent.ok()) return Failed(held, step, sent, began);
  parts_.Seam("the event is saved");
  held.later.erase(begin.step);
  held.saga.steps[static_cast<size_t>(begin.step)] = next;
  if (!action.reply) {
    parts_.events.OnTry(held.saga, next, Outcome::Done(Json()), SecondsSince(began));
  }
  return absl::OkStatus();
}

absl::Status Transactions::Failed(Held& held, const StoredStep& step, const absl::Status& fault,
                                  SteadyTime began) {
  if (IsLost(fault) || session_.broken() || parts_.stop.stop_requested()) return fault;
  return saver_.SaveTry(held, step, OutcomeOf(fault), SecondsSince(began));
}

}  // namespace lockstep::sagas
