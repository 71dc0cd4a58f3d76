#include "sagas/engine/worker.h"

#include <algorithm>
#include <utility>

#include "idempotency/keys.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/cancel_on_stop.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "sagas/definition/request_template.h"
#include "sagas/engine/sql_outcome.h"

namespace lockstep::sagas {
namespace {

// A statement that does more than this is a step with a limit of its own; see kLongestSql.
constexpr Millis kStatementTimeout{30'000};
// One whose definition can't be read is looked at again after that.
constexpr Millis kUnreadable{60'000};
// Where a place of a tag is waited for, and the word of it was lost.
constexpr Millis kTagLook{1'000};
// So many of those that were given back for a moment are looked at in time.
constexpr size_t kMostSoon = 1'000;
// One whose idempotency key is in flight.
constexpr Millis kKeyLook{1'000};

SteadyTime Now() { return Clock::System().Steady(); }

}  // namespace

void Worker::Run() {
  while (const HeldPtr held = parts_.hand.Take(parts_.stop.get_token())) {
    if (parts_.crashed) return;
    try {
      CarryOn(held);
    } catch (const SeamCrash&) {
      parts_.crashed = true;
      parts_.stop.request_stop();
      parts_.wake.Wake();
      return;
    }
  }
}

absl::Status Worker::Open() {
  if (session_ != nullptr && !session_->broken()) return absl::OkStatus();
  store_.reset();
  // A server that hangs is given up after the longest that a step may take; one that is gone, when
  // its connection is found dead.
  ASSIGN_OR_RETURN(session_,
                   postgres::Connection::Open({.url = parts_.options.database,
                                               .application_name = "lockstep-orchestrator steps",
                                               .statement_timeout = kLongestSql,
                                               .lock_timeout = Millis(10'000)}));
  store_ = std::make_unique<WorkStore>(*session_);
  return session_->Run(
      fmt::format("SET statement_timeout = {}; SELECT set_config('lockstep.saga_actor', {}, false)",
                  kStatementTimeout.count(), postgres::QuoteLiteral(parts_.options.owner)));
}

void Worker::CarryOn(const HeldPtr& held) {
  while (!parts_.crashed) {
    std::optional<SteadyTime> look_at;
    auto next = absl::StatusOr<Next>(Next::kDecide);
    if (absl::Status opened = Open(); !opened.ok()) {
      next = opened;
    } else {
      next = Step(held, &look_at);
    }
    if (!next.ok() && IsLost(next.status())) {
      held->stale = true;
      continue;
    }
    if (!next.ok()) {
      // The database's fault: what is known is kept, and read anew when it answers again.
      parts_.events.OnDatabase(next.status());
      held->stale = true;
      if (session_ != nullptr && session_->broken()) session_.reset();
      parts_.hand.Rest(held, Now() + backoff_.Next());
      return;
    }
    if (backoff_.attempts() > 0) {
      backoff_.Reset();
      parts_.events.OnDatabase(absl::OkStatus());
    }
    if (*next == Next::kDecide) continue;
    if (*next == Next::kRest) parts_.hand.Rest(held, look_at);
    return;
  }
}

absl::StatusOr<Worker::Next> Worker::Step(const HeldPtr& held, std::optional<SteadyTime>* look_at) {
  Hand::News news = parts_.hand.TakeNews(*held);
  if (news.lost) {
    Lose(held);
    return Next::kOver;
  }
  std::ranges::move(news.answers, std::back_inserter(held->unsaved));
  if (news.look) held->stale = true;
  if (held->stale) {
    ASSIGN_OR_RETURN(const bool ours, Read(*held));
    if (!ours) {
      Lose(held);
      return Next::kOver;
    }
  }
  if (held->definition == nullptr) {
    auto definition = parts_.DefinitionOf(*session_, held->saga.definition, held->saga.version);
    if (!definition.ok()) {
      if (postgres::Classify(definition.status()) == postgres::ErrorClass::kTransient) {
        return definition.status();
      }
      log::Error("the definition of a saga can't be read; it is looked at again",
                 {{"saga", held->id},
                  {"definition", held->saga.definition},
                  {"version", held->saga.version},
                  {"error", definition.status()}});
      return GiveBack(held, held->Now() + kUnreadable);
    }
    held->definition = *std::move(definition);
  }
  if (!held->unsaved.empty()) {
    RETURN_IF_ERROR(SaveAnswer(*held, held->unsaved.front()));
    held->unsaved.erase(held->unsaved.begin());
    return Next::kDecide;
  }
  const Decision decision = Decide(*held->definition, held->saga, held->Now(), held->StepsHere());
  if (decision.changes()) return Save(held, decision);
  if (!parts_.draining) {
    if (!decision.ask_key.empty()) {
      RETURN_IF_ERROR(AskKey(*held, decision.ask_key.front()));
      if (held->saga.steps[static_cast<size_t>(decision.ask_key.front())].state !=
          StepState::kInFlight) {
        return Next::kDecide;
      }
      // Whoever has the key is at it still.
      *look_at = Now() + kKeyLook;
      return Next::kRest;
    }
    if (!decision.begin.empty()) return Begin(held, decision, look_at);
  }
  if (held->here.empty()) {
    const bool more = parts_.draining && (!decision.begin.empty() || !decision.ask_key.empty());
    return GiveBack(held, more ? std::optional(held->Now()) : decision.look_at);
  }
  if (decision.look_at) {
    *look_at = Now() + std::chrono::ceil<Millis>(*decision.look_at - held->Now());
  }
  return Next::kRest;
}

// False = it is another's by now, or has ended.
absl::StatusOr<bool> Worker::Read(Held& held) {
  parts_.Seam("load");
  ASSIGN_OR_RETURN(auto loaded, store_->Load({held.lease}));
  if (loaded.empty()) return false;
  held.saga = std::move(loaded.front().saga);
  held.lease = std::move(loaded.front().lease);
  held.read_at = loaded.front().now;
  held.read_steady = Now();
  held.stale = false;
  parts_.hand.Seen(held);
  // What is not in flight any more is not waited for.
  for (const int step : held.StepsHere()) {
    const StoredStep& stored = held.saga.steps[static_cast<size_t>(step)];
    if (stored.state != StepState::kInFlight || stored.in_doubt) Forget(held, step);
  }
  return true;
}

absl::StatusOr<Worker::Next> Worker::Save(const HeldPtr& held, const Decision& decision) {
  parts_.Seam("hold to save");
  ASSIGN_OR_RETURN(auto transaction, store_->Hold(held->lease));
  for (const Decision::StepChange& change : decision.steps) {
    parts_.Seam("save a step");
    RETURN_IF_ERROR(WorkStore::Save(transaction, held->id, change.step, change.was));
  }
  if (decision.saga) {
    parts_.Seam("save the saga");
    RETURN_IF_ERROR(WorkStore::Save(transaction, held->id, *decision.saga));
  }
  parts_.Seam("commit what was decided");
  RETURN_IF_ERROR(transaction.Commit());
  parts_.Seam("what was decided is saved");
  for (const int step : decision.abandoned) Forget(*held, step);
  const SagaState was = held->saga.state;
  Apply(decision, held->saga);
  if (held->saga.state != was) TellState(*held, was);
  if (!held->saga.ended()) return Next::kDecide;
  Drop(held);
  return Next::kOver;
}

absl::StatusOr<Worker::Next> Worker::Begin(const HeldPtr& held, const Decision& decision,
                                           std::optional<SteadyTime>* look_at) {
  const auto kind_of = [&](const Decision::Begin& begin) {
    return ActionOf(*held->definition, begin.step, begin.undo).kind;
  };
  // Calls first, so that they are under way while this thread does what can't be left to others.
  std::vector<Decision::Begin> calls;
  for (const Decision::Begin& begin : decision.begin) {
    const ActionKind kind = kind_of(begin);
    if (kind == ActionKind::kSql || kind == ActionKind::kBus) continue;
    if (kind == ActionKind::kWait || parts_.tags.Take(TagOf(*held, begin.step), held->id)) {
      calls.push_back(begin);
    }
  }
  if (!calls.empty()) return BeginCalls(held, calls, look_at);
  for (const Decision::Begin& begin : decision.begin) {
    const ActionKind kind = kind_of(begin);
    if (kind != ActionKind::kSql && kind != ActionKind::kBus) continue;
    const std::string tag = TagOf(*held, begin.step);
    if (!parts_.tags.Take(tag, held->id)) continue;
    const SteadyTime began = Now();
    auto next = kind == ActionKind::kSql ? RunSql(held, begin, began) : RunBus(held, begin, began);
    parts_.Give(tag);
    return next;
  }
  *look_at = Now() + kTagLook;
  return Next::kRest;
}

std::string Worker::TagOf(const Held& held, int step) {
  return held.definition->steps[static_cast<size_t>(step)].concurrency_tag;
}

StepCall Worker::CallFor(const Held& held, int step, bool undo, Json request) {
  const std::string& name = held.saga.steps[static_cast<size_t>(step)].name;
  return {.saga = held.id,
          .definition = held.saga.definition,
          .step = name,
          .compensation = undo,
          .key = fmt::format("{}/{}{}", held.id, name, undo ? "/compensate" : ""),
          .request = std::move(request),
          .tenant = held.saga.tenant,
          .traceparent = held.saga.traceparent,
          .tracestate = held.saga.tracestate};
}

// Not begun yet: as it is stored, but for whether it is its undoing.
StoredStep Worker::Beginning(const Held& held, const Decision::Begin& begin) {
  StoredStep step = held.saga.steps[static_cast<size_t>(begin.step)];
  step.compensating = begin.undo;
  step.deadline.reset();
  return step;
}

absl::StatusOr<Worker::Next> Worker::BeginCalls(const HeldPtr& held,
                                                const std::vector<Decision::Begin>& begins,
                                                std::optional<SteadyTime>* look_at) {
  struct Call {
    StoredStep step;
    StepState was;
    const Action* action;
    StepCall call;
    std::optional<http::Request> request;
  };
  const auto give_all = [&] {
    for (const Decision::Begin& begin : begins) {
      const Action& action = ActionOf(*held->definition, begin.step, begin.undo);
      if (action.kind != ActionKind::kWait) parts_.Give(TagOf(*held, begin.step));
    }
  };
  // Another may have it already, of which we have not heard.
  const Millis margin = parts_.options.lease / 5;
  if (!parts_.hand.LeaseHolds(*held, margin)) {
    give_all();
    *look_at = Now() + margin;
    return Next::kRest;
  }
  const Json context = ContextOf(held->saga);
  std::vector<Call> calls;
  for (const Decision::Begin& begin : begins) {
    const Action& action = ActionOf(*held->definition, begin.step, begin.undo);
    Call& one = calls.emplace_back(Call{.step = Beginning(*held, begin),
                                        .was = StepState::kReady,
                                        .action = &action,
                                        .call = {},
                                        .request = std::nullopt});
    one.was = one.step.state;
    if (action.kind != ActionKind::kWait) {
      const Outcome ready = Prepare(*held, begin, action, context, &one.call, &one.request);
      if (ready.kind != Outcome::Kind::kDone) {
        give_all();
        RETURN_IF_ERROR(SaveTry(*held, one.step, ready, 0));
        return Next::kDecide;
      }
    }
    one.step.state = StepState::kInFlight;
    one.step.available_at.reset();
    one.step.in_doubt = false;
    if (action.timeout > Millis(0)) one.step.deadline = held->Now() + action.timeout;
  }
  const absl::Status marked = [&]() -> absl::Status {
    parts_.Seam("hold to mark");
    ASSIGN_OR_RETURN(auto transaction, store_->Hold(held->lease));
    for (const Call& one : calls) {
      parts_.Seam("mark in flight");
      RETURN_IF_ERROR(WorkStore::Save(transaction, held->id, one.step, one.was));
    }
    parts_.Seam("commit the marks");
    return transaction.Commit();
  }();
  if (!marked.ok()) {
    give_all();
    return marked;
  }
  for (const Call& one : calls) held->saga.steps[static_cast<size_t>(one.step.step)] = one.step;
  parts_.Seam("marked in flight");
  for (Call& one : calls) {
    if (one.action->kind == ActionKind::kWait) continue;
    const int step = one.step.step;
    if (!parts_.hand.LeaseHolds(*held, margin)) {
      // This process stood still meanwhile: it is not sent, and if the lease is ours still, not in
      // flight.
      parts_.Give(TagOf(*held, step));
      StoredStep back = one.step;
      RETURN_IF_ERROR(SaveTry(*held, back,
                              {.kind = Outcome::Kind::kLater,
                               .code = kInternalCode,
                               .words = "the orchestrator stood still before the call was made"},
                              0));
      continue;
    }
    const int64_t number = ++parts_.calls;
    Held::Here& here = held->here[step];
    here.call = number;
    here.began = Now();
    here.tag = TagOf(*held, step);
    const auto done = [&parts = parts_, id = held->id, step, number](Outcome outcome) {
      if (parts.crashed) return;
      parts.hand.Answer(id, {step, number, std::move(outcome)});
    };
    parts_.Seam("call");
    if (one.action->kind == ActionKind::kHttp) {
      parts_.http.Send(*std::move(one.request), done);
    } else {
      parts_.functions.Run(one.action->target, std::move(one.call), here.stop.get_token(), done);
    }
    parts_.Seam("called");
  }
  return Next::kDecide;
}

// What is to be sent; or why it can't be, as an outcome of the step.
Outcome Worker::Prepare(const Held& held, const Decision::Begin& begin, const Action& action,
                        const Json& context, StepCall* call,
                        std::optional<http::Request>* request) {
  auto filled = FillRequest(action.request, context);
  if (!filled.ok()) {
    return Outcome::Refused(kRequestCode, std::string(MessageOf(filled.status())));
  }
  *call = CallFor(held, begin.step, begin.undo, *std::move(filled));
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
  auto prepared = parts_.http.Prepare(*call, action, *url);
  if (prepared.ok()) {
    *request = *std::move(prepared);
    return {};
  }
  const std::string words(MessageOf(prepared.status()));
  if (absl::IsInvalidArgument(prepared.status())) return Outcome::Refused(kRequestCode, words);
  return {.kind = Outcome::Kind::kBlocked, .code = kMisconfiguredCode, .words = words};
}

absl::StatusOr<Worker::Next> Worker::RunSql(const HeldPtr& held, const Decision::Begin& begin,
                                            SteadyTime began) {
  const Action& action = ActionOf(*held->definition, begin.step, begin.undo);
  const StoredStep step = Beginning(*held, begin);
  const StepState was = step.state;
  const auto seconds = [&] { return std::chrono::duration<double>(Now() - began).count(); };
  const auto request = FillRequest(action.request, ContextOf(held->saga));
  const auto function = postgres::QualifiedName::Parse(action.target);
  if (!request.ok() || !function.ok()) {
    const absl::Status fault = request.ok() ? function.status() : request.status();
    RETURN_IF_ERROR(
        SaveTry(*held, step, Outcome::Refused(kRequestCode, std::string(MessageOf(fault))), 0));
    return Next::kDecide;
  }
  StoredStep next = AfterTry(step, action, Outcome::Done(Json()), held->Now(), 0, 0);
  const std::optional<SagaState> ends = EndOf(*held, next);
  const Millis limit = action.timeout == kStatementTimeout ? Millis(0)
                       : action.timeout == Millis(0)       ? kLongestSql
                                                           : std::min(action.timeout, kLongestSql);
  parts_.Seam("sql");
  const postgres::CancelOnStop cancel(parts_.stop.get_token(), parts_.options.database,
                                      session_->backend_pid());
  auto result =
      store_->CallAndSave(held->lease, function->Quoted(), request->dump(), next, was, ends, limit);
  parts_.Seam("sql is done");
  if (!result.ok()) {
    if (IsLost(result.status()) || session_->broken() || parts_.stop.stop_requested()) {
      return result.status();
    }
    RETURN_IF_ERROR(SaveTry(*held, step, OutcomeOf(result.status()), seconds()));
    return Next::kDecide;
  }
  held->later.erase(begin.step);
  if (!begin.undo) next.result = *std::move(result);
  held->saga.steps[static_cast<size_t>(begin.step)] = next;
  parts_.events.OnTry(held->saga, next, Outcome::Done(Json()), seconds());
  if (!ends) return Next::kDecide;
  held->saga.state = *ends;
  TellState(*held, begin.undo ? SagaState::kCompensating : SagaState::kRunning);
  Drop(held);
  return Next::kOver;
}

// The state that the saga ends in with this step, if nothing else is left to do or to be said.
std::optional<SagaState> Worker::EndOf(const Held& held, const StoredStep& last) {
  StoredSaga after = held.saga;
  after.steps[static_cast<size_t>(last.step)] = last;
  const Decision then = Decide(*held.definition, after, held.Now(), held.StepsHere());
  if (!then.steps.empty() || !then.saga || !then.saga->reason.empty() ||
      !then.saga->error.empty()) {
    return std::nullopt;
  }
  const SagaState state = then.saga->state;
  const bool over = state == SagaState::kCompleted || state == SagaState::kFailed ||
                    state == SagaState::kCancelled;
  return over ? std::optional(state) : std::nullopt;
}

absl::StatusOr<Worker::Next> Worker::RunBus(const HeldPtr& held, const Decision::Begin& begin,
                                            SteadyTime began) {
  const Action& action = ActionOf(*held->definition, begin.step, begin.undo);
  const StoredStep step = Beginning(*held, begin);
  const auto request = FillRequest(action.request, ContextOf(held->saga));
  if (!request.ok()) {
    RETURN_IF_ERROR(SaveTry(
        *held, step, Outcome::Refused(kRequestCode, std::string(MessageOf(request.status()))), 0));
    return Next::kDecide;
  }
  StoredStep next = AfterTry(step, action, Outcome::Done(Json()), held->Now(), 0, 0);
  if (action.reply) {
    next.state = StepState::kInFlight;
    if (action.timeout > Millis(0)) next.deadline = held->Now() + action.timeout;
  }
  const absl::Status sent = [&]() -> absl::Status {
    parts_.Seam("hold to send");
    ASSIGN_OR_RETURN(auto transaction, store_->Hold(held->lease));
    parts_.Seam("the event's version");
    ASSIGN_OR_RETURN(const int64_t version, WorkStore::NextVersion(transaction, held->id));
    parts_.Seam("enqueue");
    RETURN_IF_ERROR(publisher::Enqueue(transaction, held->definition->outbox,
                                       EventFor(*held, begin, action, *request, version))
                        .status());
    parts_.Seam("save the sent step");
    RETURN_IF_ERROR(WorkStore::Save(transaction, held->id, next, step.state));
    parts_.Seam("commit the event");
    return transaction.Commit();
  }();
  const double seconds = std::chrono::duration<double>(Now() - began).count();
  if (!sent.ok()) {
    if (IsLost(sent) || session_->broken() || parts_.stop.stop_requested()) return sent;
    RETURN_IF_ERROR(SaveTry(*held, step, OutcomeOf(sent), seconds));
    return Next::kDecide;
  }
  parts_.Seam("the event is saved");
  held->later.erase(begin.step);
  held->saga.steps[static_cast<size_t>(begin.step)] = next;
  if (!action.reply) parts_.events.OnTry(held->saga, next, Outcome::Done(Json()), seconds);
  return Next::kDecide;
}

publisher::NewEvent Worker::EventFor(const Held& held, const Decision::Begin& begin,
                                     const Action& action, const Json& request, int64_t version) {
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

// A call whose orchestrator died, or whose answer did not come: its idempotency key tells.
absl::Status Worker::AskKey(Held& held, int step) {
  StoredStep at = held.saga.steps[static_cast<size_t>(step)];
  const std::string key = CallFor(held, step, at.compensating, Json()).key;
  parts_.Seam("ask the key");
  auto found = idempotency::ShowKey(*session_, held.saga.tenant, key);
  if (absl::IsNotFound(found.status()) && held.saga.tenant) {
    found = idempotency::ShowKey(*session_, std::nullopt, key);
  }
  if (found.ok() && !found->at("expired").get<bool>()) {
    const auto text = [&](const char* name) {
      return found->at(name).is_string() ? found->at(name).get<std::string>() : "";
    };
    if (text("state") == "Succeeded") {
      Json result = Json::parse(text("digest"), nullptr, /*allow_exceptions=*/false);
      if (result.is_discarded()) result = Json(text("digest"));
      return SaveTry(held, at, Outcome::Done(KeptResult(std::move(result))), 0);
    }
    if (text("state") == "Failed") {
      return SaveTry(held, at, Outcome::Refused(kRefusedCode, text("error")), 0);
    }
    if (!found->at("lapsed").is_boolean() || !found->at("lapsed").get<bool>()) {
      return absl::OkStatus();  // in flight
    }
  } else if (!found.ok() && !absl::IsNotFound(found.status())) {
    if (postgres::Classify(found.status()) == postgres::ErrorClass::kTransient) {
      return found.status();
    }
    // Nobody can tell.
    return SaveTry(
        held, at,
        {.kind = Outcome::Kind::kFailed,
         .code = kInDoubtCode,
         .words = fmt::format("its idempotency key can't be asked: {}", MessageOf(found.status()))},
        0);
  }
  return SaveTry(held, at,
                 {.kind = Outcome::Kind::kFailed,
                  .code = kUnavailableCode,
                  .words = "no answer came, and its idempotency key is not taken",
                  .certain = true},
                 0);
}

absl::StatusOr<Worker::Next> Worker::GiveBack(const HeldPtr& held, std::optional<WallTime> run_at) {
  parts_.Seam("release");
  ASSIGN_OR_RETURN(const bool ours, store_->Release(held->lease, run_at));
  parts_.Seam("released");
  if (!ours) {
    held->stale = true;
    return Next::kDecide;
  }
  if (run_at) {
    const SteadyTime at = Now() + std::chrono::ceil<Millis>(*run_at - held->Now());
    if (at < Now() + parts_.options.poll_interval) {
      const std::scoped_lock lock(parts_.mu);
      if (parts_.soon.size() < kMostSoon) parts_.soon.push_back(at);  // else the poll finds it
    }
  }
  Drop(held);
  return Next::kOver;
}

absl::Status Worker::SaveTry(Held& held, const StoredStep& step, const Outcome& outcome,
                             double seconds) {
  const Action& action = ActionOf(*held.definition, step.step, step.compensating);
  StoredStep& stored = held.saga.steps[static_cast<size_t>(step.step)];
  const int later = outcome.kind == Outcome::Kind::kLater ? ++held.later[step.step] : 0;
  if (later == 0) held.later.erase(step.step);
  const StoredStep next = AfterTry(step, action, outcome, held.Now(), later, random_());
  parts_.Seam("hold to save a try");
  ASSIGN_OR_RETURN(auto transaction, store_->Hold(held.lease));
  parts_.Seam("save a try");
  RETURN_IF_ERROR(WorkStore::Save(transaction, held.id, next, stored.state));
  parts_.Seam("commit a try");
  RETURN_IF_ERROR(transaction.Commit());
  parts_.Seam("a try is saved");
  stored = next;
  parts_.events.OnTry(held.saga, next, outcome, seconds);
  return absl::OkStatus();
}

absl::Status Worker::SaveAnswer(Held& held, const CallAnswer& answer) {
  const auto here = held.here.find(answer.step);
  if (here == held.here.end() || here->second.call != answer.call) return absl::OkStatus();
  const StoredStep& step = held.saga.steps[static_cast<size_t>(answer.step)];
  const Action& action = ActionOf(*held.definition, answer.step, step.compensating);
  const double seconds = std::chrono::duration<double>(Now() - here->second.began).count();
  // Of one whose key tells, nobody need be in doubt.
  const bool ask = action.settled_by_key && answer.outcome.kind == Outcome::Kind::kFailed &&
                   !answer.outcome.certain;
  if (!ask) RETURN_IF_ERROR(SaveTry(held, step, answer.outcome, seconds));
  Forget(held, answer.step);
  return absl::OkStatus();
}

void Worker::Forget(Held& held, int step) {
  const auto here = held.here.find(step);
  if (here == held.here.end()) return;
  here->second.stop.request_stop();
  const std::string tag = here->second.tag;
  held.here.erase(here);
  parts_.Give(tag);
}

void Worker::Lose(const HeldPtr& held) {
  parts_.events.OnLost(held->id);
  Drop(held);
}

void Worker::Drop(const HeldPtr& held) {
  for (const int step : held->StepsHere()) Forget(*held, step);
  parts_.hand.Drop(held);
}

void Worker::TellState(const Held& held, SagaState was) { parts_.events.OnState(held.saga, was); }

}  // namespace lockstep::sagas
