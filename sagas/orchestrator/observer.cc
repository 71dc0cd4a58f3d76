#include "sagas/orchestrator/observer.h"

#include <fmt/format.h>

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "platform/status.h"
#include "sagas/engine/decide.h"

namespace lockstep::sagas {
namespace {

// Operators name definitions and steps; beyond these, they share one label.
constexpr size_t kMostDefinitions = 200;
constexpr char kRest[] = "(other)";
// A step that is blocked is tried again after its policy's cap; one that nobody saw for longer was
// mended, or skipped.
constexpr Millis kBlockedFor{180'000};

std::string Tenant(const StoredSaga& saga) {
  return std::string(saga.tenant ? UnlessMasked(*saga.tenant) : "");
}

}  // namespace

Observer::Observer(MetricsRegistry& metrics)
    : metrics_(metrics),
      replays_(CounterOf(metrics, "tx_replay_total",
                         "rows and messages that an operator sent again", {{"kind", "saga"}})),
      lost_(CounterOf(metrics, "tx_saga_leases_lost_total",
                      "sagas whose lease was lost before their work was saved", {})) {}

Observer::OfDefinition& Observer::Of(const std::string& definition) {
  const auto found = definitions_.find(definition);
  if (found != definitions_.end()) return found->second;
  const std::string label = definitions_.size() >= kMostDefinitions ? kRest : definition;
  OfDefinition& of = definitions_[label];
  if (of.started != nullptr) return of;
  const Labels labels = {{"def", label}};
  of.started = &CounterOf(metrics_, "tx_saga_started_total", "sagas that were begun", labels);
  of.completed =
      &CounterOf(metrics_, "tx_saga_completed_total", "sagas that were completed", labels);
  of.failed = &CounterOf(metrics_, "tx_saga_failed_total",
                         "sagas that failed, those that were undone and dead ones", labels);
  of.compensated =
      &CounterOf(metrics_, "tx_saga_compensate_total", "sagas whose undoing has begun", labels);
  return of;
}

void Observer::OnClaimed(const StoredSaga& saga, Claimed::News news) {
  const std::scoped_lock lock(mu_);
  OfDefinition& of = Of(saga.definition);
  if (news == Claimed::News::kStarted) of.started->Increment();
  if (news == Claimed::News::kReplayed) replays_.Increment();
}

void Observer::OnTry(const StoredSaga& saga, const StoredStep& step, const Outcome& outcome,
                     double seconds) {
  const auto key = std::pair(saga.definition, step.name);
  {
    const std::scoped_lock lock(mu_);
    OfDefinition& of = Of(saga.definition);
    const bool other = !definitions_.contains(saga.definition);
    prometheus::Histogram*& histogram = of.steps[other ? kRest : step.name];
    if (histogram == nullptr) {
      histogram = &HistogramOf(
          metrics_, "tx_saga_step_latency_seconds",
          "from the begin of a try of a step, or of its undoing, to its end",
          {{"def", other ? kRest : saga.definition}, {"step", other ? kRest : step.name}});
    }
    histogram->Observe(seconds);
    if (outcome.kind == Outcome::Kind::kBlocked) {
      blocked_[key] = {outcome.words, Clock::System().Steady(), kBlockedFor};
    } else {
      blocked_.erase(key);
    }
  }
  if (outcome.kind == Outcome::Kind::kDone) {
    log::Debug("a step is done", {{"definition", saga.definition},
                                  {"step", step.name},
                                  {"saga", saga.id},
                                  {"state", Name(step.state)}});
    return;
  }
  const auto tell = outcome.kind == Outcome::Kind::kBlocked ? log::Error : log::Warning;
  tell(step.compensating ? "a compensation failed" : "a step failed",
       {{"definition", saga.definition},
        {"step", step.name},
        {"saga", saga.id},
        log::IfAny("tenant_id", Tenant(saga)),
        {"attempts", step.compensating ? step.compensation_attempts : step.attempts},
        {"state", Name(step.state)},
        {"error_code", step.error_code},
        {"error", UnlessMasked(step.last_error)}});
}

void Observer::OnState(const StoredSaga& saga, SagaState was) {
  {
    const std::scoped_lock lock(mu_);
    OfDefinition& of = Of(saga.definition);
    if (saga.state == SagaState::kCompleted) of.completed->Increment();
    if (saga.state == SagaState::kFailed) of.failed->Increment();
    if (saga.state == SagaState::kCancelled) ++of.cancelled;
    if (saga.state == SagaState::kCompensating && was == SagaState::kRunning) {
      of.compensated->Increment();
    }
  }
  const auto tell = saga.state == SagaState::kCompleted ? log::Debug
                    : saga.state == SagaState::kFailed || saga.state == SagaState::kPaused
                        ? log::Warning
                        : log::Info;
  tell("a saga's state changed", {{"definition", saga.definition},
                                  {"saga", saga.id},
                                  log::IfAny("tenant_id", Tenant(saga)),
                                  {"from", Name(was)},
                                  {"state", Name(saga.state)},
                                  log::IfAny("error_code", saga.error_code),
                                  log::IfAny("error", std::string(UnlessMasked(saga.error))),
                                  log::IfAny("reason", std::string(UnlessMasked(saga.reason)))});
}

void Observer::OnLost(const std::string& saga) {
  lost_.Increment();
  log::Warning("a saga's lease was lost; another orchestrator has it, or it has ended",
               {{"saga", saga}});
}

void Observer::OnDatabase(const absl::Status& status) {
  const std::scoped_lock lock(mu_);
  if (status.ok()) {
    if (database_) log::Info("the sagas' database answers again");
    database_.reset();
    return;
  }
  const std::string words(MessageOf(status));
  if (!database_ || database_->words != words) {
    log::Fault("the sagas' database can't be worked on; it is tried again", {{"error", status}});
  }
  database_ = Fault{database_ ? database_->since : Clock::System().Steady(), words};
}

std::optional<Observer::Fault> Observer::database() const {
  const std::scoped_lock lock(mu_);
  return database_;
}

std::vector<Observer::Totals> Observer::totals() const {
  const auto number = [](const prometheus::Counter* counter) {
    return static_cast<int64_t>(counter->Value());
  };
  const std::scoped_lock lock(mu_);
  std::vector<Totals> totals;
  for (const auto& [definition, of] : definitions_) {
    totals.push_back({definition, number(of.started), number(of.completed), number(of.failed),
                      number(of.compensated), of.cancelled});
  }
  return totals;
}

std::vector<std::string> Observer::Blocked(SteadyTime now) const {
  const std::scoped_lock lock(mu_);
  std::vector<std::string> sentences;
  for (const auto& [step, block] : blocked_) {
    if (now - block.seen > block.again) continue;
    sentences.push_back(
        fmt::format("step {} of {} can't be run: {}", step.second, step.first, block.words));
  }
  return sentences;
}

}  // namespace lockstep::sagas
