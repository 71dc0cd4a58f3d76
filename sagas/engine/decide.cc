#include "sagas/engine/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/text.h"
#include "sagas/definition/condition.h"

namespace lockstep::sagas {
namespace {

constexpr size_t kErrorBytes = 2'048;
// An answer to a call that has a limit of its own comes a little later than that.
constexpr Millis kAnswerMargin{5'000};
// No wait for another try is longer than that or one and a half of its policy's cap: one that is
// was written by a clock that has been set back since.
constexpr Millis kLongestRetryAfter{3'600'000};

bool IsCall(const Action& action) {
  return action.kind == ActionKind::kHttp || action.kind == ActionKind::kFunction;
}

bool InDoubt(const StoredStep& step) {
  return step.state == StepState::kInFlight && step.in_doubt && !step.signal.has_value();
}

class Decider {
 public:
  Decider(const Definition& definition, const StoredSaga& saga, WallTime now,
          const std::set<int>& here)
      : definition_(definition), saga_(saga), now_(now), here_(here) {}

  Decision Decide() {
    if (saga_.ended()) return {};
    SettleInFlight();
    if (decision_.changes() || !decision_.ask_key.empty()) return std::move(decision_);
    switch (saga_.state) {
      case SagaState::kPaused:
        if (!saga_.pause_asked && Doubtful() == nullptr) {
          decision_.saga = SagaChange{.state = saga_.paused_from.value_or(SagaState::kRunning)};
        }
        break;
      case SagaState::kRunning:
        GoOn();
        break;
      case SagaState::kCompensating:
        GoBack();
        break;
      default:
        break;
    }
    return std::move(decision_);
  }

 private:
  const Action& Of(const StoredStep& step) const {
    return ActionOf(definition_, step.step, step.compensating);
  }
  bool Undoable(const StoredStep& step) const {
    return definition_.steps[static_cast<size_t>(step.step)].compensate.has_value();
  }
  const StoredStep* Doubtful() const {
    const auto found = std::ranges::find_if(saga_.steps, InDoubt);
    return found == saga_.steps.end() ? nullptr : &*found;
  }
  bool AnyInFlight() const {
    return std::ranges::any_of(saga_.steps,
                               [](const auto& step) { return step.state == StepState::kInFlight; });
  }

  void Change(StoredStep step, StepState was) {
    if (step.state != StepState::kInFlight) step.deadline.reset();
    decision_.steps.push_back({std::move(step), was});
  }
  static void Blame(StoredStep& step, const char* code, std::string words) {
    step.error_code = code;
    step.last_error = Truncate(words, kErrorBytes);
  }
  void LookAt(WallTime time) {
    if (!decision_.look_at || time < *decision_.look_at) decision_.look_at = time;
  }

  // What is in flight, and over by a signal, a deadline, or its orchestrator's death.
  void SettleInFlight() {
    for (const StoredStep& step : saga_.steps) {
      if (step.state != StepState::kInFlight) continue;
      const Action& action = Of(step);
      const bool waits = action.kind == ActionKind::kWait || action.reply;
      if (step.signal && (waits || step.in_doubt)) {
        BySignal(step);
      } else if (step.in_doubt) {
        continue;
      } else if (IsCall(action) && !here_.contains(step.step)) {
        Orphan(step, action);
      } else if (step.deadline) {
        const WallTime over =
            *step.deadline + (action.kind == ActionKind::kHttp ? kAnswerMargin : Millis(0));
        if (saga_.state == SagaState::kPaused && waits) continue;
        now_ >= over ? TimedOut(step, action) : LookAt(over);
      }
    }
  }

  void BySignal(const StoredStep& step) {
    StoredStep next = step;
    next.in_doubt = next.maybe_done = false;
    next.available_at.reset();
    if (step.signal->succeeded) {
      next.state = step.compensating ? StepState::kCompensated : StepState::kSucceeded;
      if (!step.compensating) next.result = step.signal->result;
      next.last_error.clear();
      next.error_code.clear();
    } else {
      next.state = StepState::kFailed;
      Blame(next, kRefusedCode, "a signal said that it failed");
    }
    Forget(step);
    Change(std::move(next), step.state);
  }

  void Orphan(const StoredStep& step, const Action& action) {
    if (action.settled_by_key) {
      decision_.ask_key.push_back(step.step);
    } else if (action.idempotent) {
      Again(step);
    } else {
      Doubt(step, "the orchestrator that made the call ended before the answer was saved");
    }
  }
  void Again(const StoredStep& step) {
    StoredStep next = step;
    next.state = step.compensating ? StepState::kSucceeded : StepState::kReady;
    next.available_at.reset();
    if (!step.compensating) next.maybe_done = true;
    Change(std::move(next), step.state);
  }
  void Doubt(const StoredStep& step, std::string words) {
    StoredStep next = step;
    next.in_doubt = true;
    next.deadline.reset();
    Blame(next, kInDoubtCode, std::move(words));
    Change(std::move(next), step.state);
  }

  void TimedOut(const StoredStep& step, const Action& action) {
    Forget(step);
    if (IsCall(action) && !action.idempotent) {
      return Doubt(step, "no answer came within its timeout");
    }
    StoredStep next = step;
    Blame(next, kTimeoutCode, "no answer came within its timeout");
    if (!IsCall(action)) {
      next.state = StepState::kFailed;
      next.maybe_done = action.reply && !step.compensating;  // whoever was asked may have done it
      return Change(std::move(next), step.state);
    }
    if (!step.compensating) next.maybe_done = true;
    if (action.retry.Exhausted(++next.tries())) {
      next.state = StepState::kFailed;
    } else {
      next.state = step.compensating ? StepState::kSucceeded : StepState::kReady;
      next.available_at = now_ + action.retry.Delay(next.tries(), 0.5);
    }
    Change(std::move(next), step.state);
  }
  void Forget(const StoredStep& step) {
    if (here_.contains(step.step)) decision_.abandoned.push_back(step.step);
  }

  // A step in flight that is to be left, for the saga turns back. A call that may not be made twice
  // is waited for until its own timeout: nobody else can tell what became of it.
  void Leave(const StoredStep& step, const char* code, const std::string& why) {
    const Action& action = Of(step);
    if (step.in_doubt || (IsCall(action) && !action.idempotent)) return;
    Forget(step);
    StoredStep next = step;
    next.state = StepState::kFailed;
    if (action.kind != ActionKind::kWait) next.maybe_done = true;
    Blame(next, code, why);
    Change(std::move(next), step.state);
  }

  void GoOn() {
    const StoredStep* const failed = FirstFailed();
    if (saga_.cancel_asked) {
      SagaChange change{.reason = saga_.reason.empty() ? "cancelled" : "",
                        .error = "cancelled",
                        .error_code = kCancelledCode};
      return TurnBack(std::move(change), /*cancelled=*/true);
    }
    if (saga_.deadline && now_ >= *saga_.deadline) {
      SagaChange change{.reason = "the saga took longer than its timeout",
                        .error = "the saga took longer than its timeout",
                        .error_code = kTimeoutCode};
      for (const StoredStep& step : saga_.steps) {
        const bool done = step.state == StepState::kSucceeded || step.state == StepState::kSkipped;
        if (!done && !change.failed_step) change.failed_step = step.step;
      }
      return TurnBack(std::move(change), /*cancelled=*/false);
    }
    if (failed != nullptr) {
      SagaChange change{
          .reason = fmt::format("step {} failed", failed->name),
          .error = Truncate(fmt::format("{}: {}", failed->name, failed->last_error), kErrorBytes),
          .error_code = failed->error_code,
          .failed_step = failed->step};
      return TurnBack(std::move(change), /*cancelled=*/false);
    }
    if (const StoredStep* doubtful = Doubtful()) return Pause(*doubtful);
    if (saga_.deadline) LookAt(*saga_.deadline);
    Advance();
  }

  // The step because of which the saga turns back; neighbours that were left then failed after it.
  const StoredStep* FirstFailed() const {
    const auto is_failed = [](const StoredStep& step) { return step.state == StepState::kFailed; };
    if (saga_.failed_step && is_failed(saga_.steps[static_cast<size_t>(*saga_.failed_step)])) {
      return &saga_.steps[static_cast<size_t>(*saga_.failed_step)];
    }
    const auto found = std::ranges::find_if(saga_.steps, is_failed);
    return found == saga_.steps.end() ? nullptr : &*found;
  }

  void TurnBack(SagaChange change, bool cancelled) {
    const std::string why = change.error;
    for (const StoredStep& step : saga_.steps) {
      if (step.state == StepState::kInFlight) {
        Leave(step, change.error_code.c_str(), why);
      } else if (step.state == StepState::kReady && step.maybe_done && Undoable(step)) {
        StoredStep next = step;  // it was to be tried again
        next.state = StepState::kFailed;
        Change(std::move(next), step.state);
      }
    }
    if (decision_.changes()) {
      // What is left is Failed, too: why it was is noted with it.
      change.state = saga_.state;
      decision_.saga = std::move(change);
      return;
    }
    if (AnyInFlight()) {
      // Calls that can't be left are waited for; of those in doubt a person decides.
      if (const StoredStep* const doubtful = Doubtful()) Pause(*doubtful);
      return;
    }
    const bool stop = definition_.on_failure == OnFailure::kStop && !cancelled;
    if (stop) {
      change.state = SagaState::kFailed;
      change.dead = true;
    } else if (NextToUndo() == nullptr) {
      change.state = cancelled ? SagaState::kCancelled : SagaState::kFailed;
    } else {
      change.state = SagaState::kCompensating;
    }
    decision_.saga = std::move(change);
  }

  void Pause(const StoredStep& doubtful) {
    decision_.saga = SagaChange{
        .state = SagaState::kPaused,
        .reason = Truncate(
            fmt::format("{} {} is in doubt ({}). Look what became of it, then: lockstepctl saga "
                        "signal {} {} succeeded|failed, or saga retry, or saga skip",
                        doubtful.compensating ? "the compensation of step" : "step", doubtful.name,
                        doubtful.last_error, saga_.id, doubtful.name),
            kErrorBytes)};
  }

  // The first step that is not over, with its neighbours of the same tag.
  void Advance() {
    const auto& steps = definition_.steps;
    size_t first = 0;
    while (first < saga_.steps.size() && (saga_.steps[first].state == StepState::kSucceeded ||
                                          saga_.steps[first].state == StepState::kSkipped)) {
      ++first;
    }
    if (first == saga_.steps.size()) {
      decision_.saga = SagaChange{.state = SagaState::kCompleted};
      return;
    }
    const std::string& tag = steps[first].concurrency_tag;
    std::optional<Json> context;
    for (size_t i = first;
         i < steps.size() && (i == first || (!tag.empty() && steps[i].concurrency_tag == tag));
         ++i) {
      const StoredStep& step = saga_.steps[i];
      if (step.state != StepState::kReady) continue;
      // Asked once: one that was tried already is to be run.
      if (!steps[i].when.empty() && step.attempts == 0 && step.last_error.empty()) {
        if (!context) context = ContextOf(saga_);
        const auto when = Condition::Parse(steps[i].when);
        if (when.ok() && !when->Holds(*context)) {
          StoredStep next = step;
          next.state = StepState::kSkipped;
          Change(std::move(next), step.state);
          continue;
        }
      }
      BeginWhenDue(step, /*undo=*/false);
    }
  }

  void BeginWhenDue(const StoredStep& step, bool undo) {
    const RetryPolicy& retry = ActionOf(definition_, step.step, undo).retry;
    const auto longest = std::max(kLongestRetryAfter, retry.cap + retry.cap / 2);
    if (step.available_at && *step.available_at > now_ && *step.available_at - now_ <= longest) {
      return LookAt(*step.available_at);
    }
    decision_.begin.push_back({step.step, undo});
  }

  // The last of those that were done, or may have been, and have a compensation.
  const StoredStep* NextToUndo() const {
    for (auto step = saga_.steps.rbegin(); step != saga_.steps.rend(); ++step) {
      const bool maybe_done =
          step->state == StepState::kFailed && step->maybe_done && !step->compensating;
      if ((step->state == StepState::kSucceeded || maybe_done) && Undoable(*step)) return &*step;
    }
    return nullptr;
  }

  void GoBack() {
    for (const StoredStep& step : saga_.steps) {
      if (InDoubt(step)) return Pause(step);
      if (step.state == StepState::kInFlight) return;
      if (step.state != StepState::kFailed || !step.compensating) continue;
      decision_.saga = SagaChange{
          .state = SagaState::kFailed,
          .reason = fmt::format("the compensation of step {} failed", step.name),
          .error = Truncate(fmt::format("compensation of {}: {}", step.name, step.last_error),
                            kErrorBytes),
          .error_code = step.error_code,
          .failed_step = step.step,
          .dead = true};
      return;
    }
    if (const StoredStep* const next = NextToUndo()) return BeginWhenDue(*next, /*undo=*/true);
    decision_.saga =
        SagaChange{.state = saga_.cancel_asked ? SagaState::kCancelled : SagaState::kFailed};
  }

  const Definition& definition_;
  const StoredSaga& saga_;
  const WallTime now_;
  const std::set<int>& here_;
  Decision decision_;
};

}  // namespace

const Action& ActionOf(const Definition& definition, int step, bool undo) {
  const Step& of = definition.steps[static_cast<size_t>(step)];
  return undo && of.compensate ? *of.compensate : of.action;
}

Decision Decide(const Definition& definition, const StoredSaga& saga, WallTime now,
                const std::set<int>& here) {
  return Decider(definition, saga, now, here).Decide();
}

void Apply(const Decision& decision, StoredSaga& saga) {
  for (const Decision::StepChange& change : decision.steps) {
    saga.steps[static_cast<size_t>(change.step.step)] = change.step;
  }
  if (!decision.saga) return;
  const SagaChange& change = *decision.saga;
  if (saga.state == SagaState::kPaused && change.state != saga.state) saga.reason.clear();
  saga.paused_from = change.state == SagaState::kPaused ? std::optional(saga.state) : std::nullopt;
  saga.state = change.state;
  const auto set = [](std::string& target, const std::string& text) {
    if (!text.empty()) target = text;
  };
  set(saga.reason, change.reason);
  set(saga.error, change.error);
  set(saga.error_code, change.error_code);
  if (change.failed_step) saga.failed_step = change.failed_step;
}

}  // namespace lockstep::sagas
