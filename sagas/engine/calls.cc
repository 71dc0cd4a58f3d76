#include "sagas/engine/calls.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "platform/status.h"
#include "sagas/definition/request_template.h"
#include "sagas/engine/step_call.h"

namespace lockstep::sagas {

absl::StatusOr<bool> Calls::Begin(Held& held, const std::vector<Decision::Begin>& begins) {
  // Another may have it already, of which we have not heard.
  if (!parts_.hand.LeaseHolds(held, parts_.options.lease / 5)) return false;
  const Json context = ContextOf(held.saga);
  std::vector<Call> calls;
  for (const Decision::Begin& begin : begins) {
    const Action& action = ActionOf(*held.definition, begin.step, begin.undo);
    if (action.kind == ActionKind::kSql || action.kind == ActionKind::kBus) continue;
    Call one;
    one.step = Beginning(held, begin.step, begin.undo);
    one.was = one.step.state;
    one.action = &action;
    if (action.kind != ActionKind::kWait) {
      const Outcome ready = Prepare(held, context, one);
      if (ready.kind != Outcome::Kind::kDone) {
        RETURN_IF_ERROR(saver_.SaveTry(held, one.step, ready, 0));
        return true;
      }
      if (!TakePlaces(held, one)) continue;
    }
    one.step.state = StepState::kInFlight;
    one.step.available_at.reset();
    one.step.in_doubt = false;
    if (action.timeout > Millis(0)) one.step.deadline = held.Now() + action.timeout;
    calls.push_back(std::move(one));
  }
  if (calls.empty()) return false;
  RETURN_IF_ERROR(Mark(held, calls));
  for (Call& one : calls) {
    if (one.action->kind != ActionKind::kWait) Make(held, one);
  }
  return true;
}

// What is to be sent; or why it can't be, as an outcome of the step.
Outcome Calls::Prepare(const Held& held, const Json& context, Call& one) {
  const Action& action = *one.action;
  auto filled = FillRequest(action.request, context);
  if (!filled.ok()) {
    return Outcome::Refused(kRequestCode, std::string(MessageOf(filled.status())));
  }
  one.call = CallFor(held, one.step.step, one.step.compensating, *std::move(filled));
  if (action.kind == ActionKind::kFunction) {
    if (parts_.functions.Has(action.target)) return {};
    return {.kind = Outcome::Kind::kBlocked,
            .code = kMisconfiguredCode,
            .words = fmt::format("this orchestrator has no function {}: it is for a program that "
                                 "registers it (docs/sagas.md)",
                                 action.target)};
  }
  const auto url = FillUrl(action.target, context);
  if (!url.ok()) return Outcome::Refused(kRequestCode, std::string(MessageOf(url.status())));
  auto prepared = parts_.http.Prepare(one.call, action, *url);
  if (prepared.ok()) {
    one.request = *std::move(prepared);
    return {};
  }
  const std::string words(MessageOf(prepared.status()));
  if (absl::IsInvalidArgument(prepared.status())) return Outcome::Refused(kRequestCode, words);
  return {.kind = Outcome::Kind::kBlocked, .code = kMisconfiguredCode, .words = words};
}

bool Calls::TakePlaces(const Held& held, Call& one) {
  one.tag = parts_.tags.Take(TagOf(held, one.step.step), held.id);
  if (one.tag == nullptr) return false;
  std::vector<std::string> kinds = {Engine::Parts::kFunctionCalls};
  if (one.request) kinds = {Engine::Parts::kHttpCalls, one.request->url.origin};
  for (const std::string& kind : kinds) {
    Place place = parts_.calls.Take(kind, held.id);
    if (place == nullptr) return false;
    one.places.push_back(std::move(place));
  }
  return true;
}

absl::Status Calls::Mark(Held& held, const std::vector<Call>& calls) {
  parts_.Seam("hold to mark");
  ASSIGN_OR_RETURN(auto transaction, session_.store().Hold(held.lease));
  for (const Call& one : calls) {
    parts_.Seam("mark in flight");
    RETURN_IF_ERROR(WorkStore::Save(transaction, held.id, one.step, one.was));
  }
  parts_.Seam("commit the marks");
  RETURN_IF_ERROR(transaction.Commit());
  for (const Call& one : calls) held.saga.steps[static_cast<size_t>(one.step.step)] = one.step;
  parts_.Seam("marked in flight");
  return absl::OkStatus();
}

void Calls::Make(Held& held, Call& one) {
  const int step = one.step.step;
  const int64_t number = ++parts_.last_call;
  Held::Here& here = held.here[step];
  here.call = number;
  here.began = Clock::System().Steady();
  here.tag = std::move(one.tag);
  const auto done = [&parts = parts_, id = held.id, step, number,
                     places = std::move(one.places)](Outcome outcome) {
    if (!parts.crashed) parts.hand.Answer(id, {step, number, std::move(outcome)});
  };
  // This process may have stood still meanwhile: then it is not sent, and if the lease is ours
  // still, it is not in flight.
  if (!parts_.hand.LeaseHolds(held, parts_.options.lease / 5)) {
    return done({.kind = Outcome::Kind::kLater,
                 .code = kInternalCode,
                 .words = "the orchestrator stood still before the call was made"});
  }
  parts_.Seam("call");
  if (one.action->kind == ActionKind::kHttp) {
    parts_.http.Send(*std::move(one.request), done);
  } else {
    parts_.functions.Run(one.action->target, std::move(one.call), here.stop.get_token(), done);
  }
  parts_.Seam("called");
}

}  // namespace lockstep::sagas
