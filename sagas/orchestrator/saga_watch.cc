#include "sagas/orchestrator/saga_watch.h"

#include <algorithm>

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep::sagas {
namespace {

constexpr size_t kMostQuestions = 32;
constexpr int kMostWaiting = 25;
// While somebody looks; and at most a twentieth of the time is spent with it.
constexpr Millis kWatchedEvery{2'000};
constexpr int kShare = 20;

}  // namespace

SagaWatch::SagaWatch(const OrchestratorOptions& options, MetricsRegistry& metrics)
    : database_(options.engine.database),
      every_(options.backlog_interval),
      metrics_(metrics),
      load_(metrics, "orchestrator"),
      retention_(options.retention) {}

absl::Status SagaWatch::Start() {
  return thread_.Start([this] { Work(); });
}

void SagaWatch::Reconfigure(const RetentionOptions& retention) {
  const std::scoped_lock lock(mu_);
  const bool enabled = retention_.enabled;
  retention_ = retention;
  retention_.enabled = enabled;
  changed_.notify_all();
}

RetentionOptions SagaWatch::retention() const {
  const std::scoped_lock lock(mu_);
  return retention_;
}

std::vector<SagaCounts> SagaWatch::counts() const {
  const std::scoped_lock lock(mu_);
  return counts_;
}
std::vector<StoredSaga> SagaWatch::waiting() const {
  const std::scoped_lock lock(mu_);
  return waiting_;
}
std::string SagaWatch::error() const {
  const std::scoped_lock lock(mu_);
  return error_;
}
WallTime SagaWatch::read_at() const {
  const std::scoped_lock lock(mu_);
  return read_at_;
}

void SagaWatch::Watched(Millis time) {
  {
    const std::scoped_lock lock(mu_);
    watched_until_ = Clock::System().Steady() + time;
  }
  changed_.notify_all();
}

SteadyTime SagaWatch::NextCount() const {
  if (counted_ == SteadyTime{}) return counted_;
  const bool watched = Clock::System().Steady() < watched_until_;
  return counted_ +
         (watched ? std::min(every_, std::max(kWatchedEvery, count_took_ * kShare)) : every_);
}

bool SagaWatch::Ask(Question question) {
  {
    const std::scoped_lock lock(mu_);
    if (questions_.size() >= kMostQuestions) return false;
    questions_.push_back(std::move(question));
  }
  changed_.notify_all();
  return true;
}

void SagaWatch::Work() {
  const Clock& clock = Clock::System();
  SteadyTime next_clean = clock.Steady() + std::min(retention().interval, Millis(5'000));
  while (!thread_.stopping()) {
    std::deque<Question> questions;
    bool count = false;
    {
      std::unique_lock lock(mu_);
      changed_.wait_until(lock, thread_.stop_token(), std::min(NextCount(), next_clean),
                          [&] { return !questions_.empty() || clock.Steady() >= NextCount(); });
      questions.swap(questions_);
      count = clock.Steady() >= NextCount();
    }
    if (thread_.stopping()) return;
    for (const Question& question : questions) question(Session());
    absl::Status done;
    if (count) {
      const SteadyTime began = clock.Steady();
      done = Count();
      const std::scoped_lock lock(mu_);
      counted_ = clock.Steady();
      count_took_ = std::chrono::duration_cast<Millis>(counted_ - began);
      error_ = MessageOf(done);
    }
    if (clock.Steady() >= next_clean) {
      done.Update(Clean());
      next_clean = clock.Steady() + retention().interval;
    }
    if (!done.ok()) {
      log::Fault("sagas can't be counted or cleaned; it is tried again", {{"error", done}});
    }
  }
}

absl::StatusOr<postgres::Connection*> SagaWatch::Session() {
  if (session_ == nullptr || session_->broken()) {
    ASSIGN_OR_RETURN(session_,
                     postgres::Connection::Open({.url = database_,
                                                 .application_name = "lockstep-orchestrator watch",
                                                 .statement_timeout = Millis(10'000)}));
  }
  return session_.get();
}

absl::Status SagaWatch::Count() {
  ASSIGN_OR_RETURN(postgres::Connection* const session, Session());
  ASSIGN_OR_RETURN(auto counts, CountSagas(*session));
  std::vector<StoredSaga> waiting;
  const bool some = std::any_of(counts.begin(), counts.end(),
                                [](const auto& of) { return of.paused > 0 || of.dead > 0; });
  if (some) {
    ASSIGN_OR_RETURN(waiting, WaitingSagas(*session, kMostWaiting));
  }
  for (const SagaCounts& of : counts) {
    const auto show = [&](const char* state, int64_t number) {
      GaugeOf(metrics_, "tx_saga_open", "sagas that have not ended, as last counted",
              {{"def", of.definition}, {"state", state}})
          .Set(static_cast<double>(number));
    };
    show("running", of.running);
    show("compensating", of.compensating);
    show("paused", of.paused);
    GaugeOf(metrics_, "tx_saga_dead", "dead sagas that wait for a decision, as last counted",
            {{"def", of.definition}})
        .Set(static_cast<double>(of.dead));
    GaugeOf(metrics_, "tx_saga_due_age_seconds",
            "how long the saga that waits for longest has been due and nobody took it, as last "
            "counted; 0 = none waits",
            {{"def", of.definition}})
        .Set(std::chrono::duration<double>(of.due_for).count());
  }
  {
    const std::scoped_lock lock(mu_);
    counts_ = std::move(counts);
    waiting_ = std::move(waiting);
    read_at_ = Clock::System().Now();
  }
  return load_.Read(*session);
}

absl::Status SagaWatch::Clean() {
  const RetentionOptions options = retention();
  ASSIGN_OR_RETURN(postgres::Connection* const session, Session());
  // Also without retention: what a clock that was set back has written is mended by it.
  constexpr Millis kNever{366LL * 100 * 86'400'000};
  ASSIGN_OR_RETURN(
      const int64_t gone,
      CleanSagas(*session, options.enabled ? options.retention : kNever, options.batch_size,
                 options.enabled ? options.dead_retention : Millis(0)));
  if (gone > 0) log::Info("old sagas were deleted", {{"sagas", gone}});
  return absl::OkStatus();
}

}  // namespace lockstep::sagas
