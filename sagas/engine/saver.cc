#include "sagas/engine/saver.h"

#include "platform/status.h"

namespace lockstep::sagas {

absl::Status Saver::Save(Held& held, const Decision& decision) {
  parts_.Seam("hold to save");
  ASSIGN_OR_RETURN(auto transaction, session_.store().Hold(held.lease));
  for (const Decision::StepChange& change : decision.steps) {
    parts_.Seam("save a step");
    RETURN_IF_ERROR(WorkStore::Save(transaction, held.id, change.step, change.was));
  }
  if (decision.saga) {
    parts_.Seam("save the saga");
    RETURN_IF_ERROR(WorkStore::Save(transaction, held.id, *decision.saga));
  }
  parts_.Seam("commit what was decided");
  RETURN_IF_ERROR(transaction.Commit());
  parts_.Seam("what was decided is saved");
  for (const int step : decision.abandoned) held.Forget(step);
  const SagaState was = held.saga.state;
  Apply(decision, held.saga);
  if (held.saga.state != was) parts_.events.OnState(held.saga, was);
  return absl::OkStatus();
}

absl::Status Saver::SaveTry(Held& held, const StoredStep& step, const Outcome& outcome,
                            double seconds) {
  const Action& action = ActionOf(*held.definition, step.step, step.compensating);
  StoredStep& stored = held.saga.steps[static_cast<size_t>(step.step)];
  const int later = outcome.kind == Outcome::Kind::kLater ? ++held.later[step.step] : 0;
  if (later == 0) held.later.erase(step.step);
  const StoredStep next = AfterTry(step, action, outcome, held.Now(), later, random_());
  parts_.Seam("hold to save a try");
  ASSIGN_OR_RETURN(auto transaction, session_.store().Hold(held.lease));
  parts_.Seam("save a try");
  RETURN_IF_ERROR(WorkStore::Save(transaction, held.id, next, stored.state));
  parts_.Seam("commit a try");
  RETURN_IF_ERROR(transaction.Commit());
  parts_.Seam("a try is saved");
  stored = next;
  parts_.events.OnTry(held.saga, next, outcome, seconds);
  return absl::OkStatus();
}

absl::Status Saver::SaveAnswer(Held& held, const CallAnswer& answer) {
  const auto here = held.here.find(answer.step);
  if (here == held.here.end() || here->second.call != answer.call) return absl::OkStatus();
  const StoredStep& step = held.saga.steps[static_cast<size_t>(answer.step)];
  const Action& action = ActionOf(*held.definition, answer.step, step.compensating);
  const double seconds =
      std::chrono::duration<double>(Clock::System().Steady() - here->second.began).count();
  // Of one whose key tells, nobody need be in doubt.
  const bool ask = action.settled_by_key && answer.outcome.kind == Outcome::Kind::kFailed &&
                   !answer.outcome.certain;
  if (!ask) RETURN_IF_ERROR(SaveTry(held, step, answer.outcome, seconds));
  held.Forget(answer.step);
  return absl::OkStatus();
}

}  // namespace lockstep::sagas
