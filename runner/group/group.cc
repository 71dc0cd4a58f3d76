#include "runner/group/group.h"

#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "runner/seek/epoch_log.h"
#include "runner/status/health.h"

namespace lockstep::runner {

Group::Group(GroupOptions options, std::unique_ptr<projections::Projector> projector,
             const GroupEnvironment& environment)
    : context_(std::move(options), std::move(projector), environment),
      instances_(context_.schema, context_.epochs.group()),
      start_(context_),
      checkpoints_(context_.schema, context_.epochs, environment.transport.admin(),
                   {.enabled = context_.options.checkpoints,
                    .every = context_.options.checkpoint_every,
                    .keep = context_.options.checkpoint_keep}),
      connections_(context_.connection(), context_.options.name) {}

Group::~Group() { Stop(); }

absl::Status Group::Start() {
  return thread_.Start([this] { Run(); });
}

void Group::Stop() {
  thread_.RequestStop();
  std::shared_ptr<Session> session;
  {
    std::lock_guard lock(mu_);
    session = session_;
  }
  if (session) session->Close();  // the group's thread may be busy with a checkpoint
  thread_.Stop();
}

void Group::Reconfigure(const GroupOptions& fresh) {
  std::lock_guard lock(mu_);
  fresh_options_ = fresh;
}

bool Group::HasFreshOptions() const {
  std::lock_guard lock(mu_);
  return fresh_options_.has_value();
}

// Between two sessions: nobody else reads these numbers now.
void Group::FollowOptions() {
  std::lock_guard lock(mu_);
  if (!fresh_options_) return;
  context_.options.max_batch = fresh_options_->max_batch;
  context_.options.max_batch_bytes = fresh_options_->max_batch_bytes;
  context_.options.max_outstanding_messages = fresh_options_->max_outstanding_messages;
  context_.options.max_outstanding_bytes = fresh_options_->max_outstanding_bytes;
  context_.options.linger = fresh_options_->linger;
  context_.options.max_attempts = fresh_options_->max_attempts;
  context_.options.transient_tries = fresh_options_->transient_tries;
  context_.options.inbox_retention = fresh_options_->inbox_retention;
  context_.options.force_inbox_retention = fresh_options_->force_inbox_retention;
  fresh_options_.reset();
}

void Group::NoteTurn() {
  std::lock_guard lock(mu_);
  last_turn_ = Clock::System().Now();
}

void Group::NoteDatabase(const absl::Status& answer) {
  std::lock_guard lock(mu_);
  database_error_ = answer.ok() ? "" : std::string(MessageOf(answer));
  if (answer.ok()) database_ok_ = Clock::System().Now();
}

void Group::SetState(GroupState state, const std::string& reason) {
  {
    std::lock_guard lock(mu_);
    if (state_ == state && reason_ == reason) return;
    state_ = state;
    reason_ = reason;
  }
  context_.metrics.Halted(state == GroupState::kHalted);
  if (state == GroupState::kHalted) {
    log::Error("the group has halted", {{"group", context_.options.name}, {"reason", reason}});
  } else if (state == GroupState::kWaiting) {
    log::Warning("the group is waiting", {{"group", context_.options.name}, {"reason", reason}});
  } else {
    log::Info("the group is " + std::string(Name(state)),
              {{"group", context_.options.name}, {"reason", reason}});
  }
}

void Group::Run() {
  const std::stop_token stop = thread_.stop_token();
  while (!stop.stop_requested() && !for_good_) {
    NoteTurn();
    FollowOptions();
    const auto connection = connections_.Try();
    NoteDatabase(connection.status());
    if (!connection.ok()) {
      SetState(GroupState::kWaiting, std::string(MessageOf(connection.status())));
      if (connections_.Get(stop) == nullptr) break;
      continue;
    }
    ReadyToRun ready;
    const auto obstacle = start_.Prepare(**connection, ready);
    if (ready.under.epoch != 0) SetUnder(**connection, ready.under);
    if (obstacle) {
      Wait(*obstacle);
    } else {
      RunSession(std::move(ready));
    }
  }
  while (!stop.stop_requested() && !SleepUnlessStopped(stop, context_.environment.retry_halt)) {
    TellThatItWaits();
  }
  if (const auto connection = connections_.Try(); connection.ok()) {
    instances_.Leave(**connection, context_.environment.instance).IgnoreError();
  }
  SetState(GroupState::kStopped, "");
}

void Group::Wait(const Obstacle& obstacle) {
  SetState(obstacle.halts ? GroupState::kHalted : GroupState::kWaiting, obstacle.reason);
  TellThatItWaits();
  SleepUnlessStopped(thread_.stop_token(),
                     obstacle.halts ? context_.environment.retry_halt : context_.environment.poll);
}

// So that `lockstepctl lag` tells a group that halts or waits from one that nobody runs.
void Group::TellThatItWaits() {
  if (under_.epoch == 0) return;
  const auto connection = connections_.Try();
  if (!connection.ok()) return;
  instances_
      .Heartbeat(**connection, context_.environment.instance, Report(context_.metrics.handled()))
      .IgnoreError();
}

// Whoever noticed it first, a lane or this loop: a new epoch is told here.
void Group::SetUnder(postgres::Connection& connection, const state::GroupEpoch& under) {
  if (under_.epoch != 0 && under_.epoch != under.epoch) {
    LogEpochChange(connection, context_.schema, context_.options.name, under.epoch);
  }
  std::lock_guard lock(mu_);
  under_ = under;
}

void Group::RunSession(ReadyToRun ready) {
  const auto session = std::make_shared<Session>(context_, ready.under);
  {
    std::lock_guard lock(mu_);
    session_ = session;
    under_ = ready.under;
    inbox_retention_ = context_.options.inbox_retention;
  }
  std::optional<WorkEnd> end;
  const int64_t before = context_.metrics.handled();
  const absl::Status started = session->Start(ready.release);
  next_look_for_left_ = Clock::System().Steady() + context_.environment.look_for_left;
  if (started.ok()) {
    SetState(GroupState::kRunning, "");
    while (!end && !thread_.stopping()) {
      if (EpochChanged(ready.under, before, *session) || HasFreshOptions()) break;
      end = session->WaitFor(context_.environment.poll, thread_.stop_token());
      NoteTurn();
      context_.metrics.Refresh(Clock::System().Now());
    }
  }
  const bool finish = thread_.stopping() || HasFreshOptions();
  session->Stop(finish ? context_.environment.drain : Millis(0));
  {
    std::lock_guard lock(mu_);
    session_ = nullptr;
  }
  if (!started.ok()) return Wait({false, std::string(MessageOf(started))});
  if (thread_.stopping()) return;
  // Whatever else ended the session, or was in another lane's way.
  for_good_ = context_.budget.exceeded();
  if (for_good_) return Wait({true, context_.budget.Reason()});
  if (end == WorkEnd::kHalted) Wait({true, session->halt_reason()});
}

// A fault of the connection says nothing about the epoch: the lanes see to that themselves.
bool Group::EpochChanged(const state::GroupEpoch& under, int64_t before, Session& session) {
  const auto connection = connections_.Try();
  NoteDatabase(connection.status());
  if (!connection.ok()) return false;
  instances_.Heartbeat(**connection, context_.environment.instance, Report(before)).IgnoreError();
  const auto now = context_.epochs.Load(**connection);
  NoteDatabase(now.status());
  if (!now.ok()) return false;
  if (now->epoch == under.epoch && now->token == under.token) {
    ReleaseWhatWasLeft(**connection, under, session);
    // A database that went back must not get a checkpoint: the way to a session looks into it.
    return context_.witness.WentBack(**connection) || checkpoints_.Tick(**connection, under);
  }
  return true;
}

// A runner that ends between settling an event and releasing what waited for it (its drain ran out,
// it was killed) leaves that due. Every start releases it; while nobody starts, this does.
void Group::ReleaseWhatWasLeft(postgres::Connection& connection, const state::GroupEpoch& under,
                               Session& session) {
  constexpr int kKeys = 100;
  const SteadyTime now = Clock::System().Steady();
  if (now < next_look_for_left_ || session.releasing()) return;
  next_look_for_left_ = now + context_.environment.look_for_left;
  const auto keys = context_.batch.key_states().Releasable(connection, under.generation, kKeys);
  if (!keys.ok() || keys->empty()) return;
  log::Info("parked events were left due and are released",
            {{"group", context_.options.name}, {"aggregates", keys->size()}});
  session.Release(*keys);
}

state::InstanceReport Group::Report(int64_t before) {
  const GroupStatus now = status();
  const WallTime at = Clock::System().Now();
  const HonestLag lag = LagOf(now, at, context_.environment.health);
  state::InstanceReport report{.epoch = under_.epoch,
                               .lanes = context_.options.lanes,
                               .handled = context_.metrics.handled() - before,
                               .queued = InHand(now),
                               .lag = lag.lag,
                               .lag_basis = lag.basis,
                               .state = StateWord(now, lag.lag, at, context_.environment.health)};
  for (const LaneStatus& lane : now.lanes) {
    if (!HasWork(lane)) report.idle_lanes.push_back(lane.lane);
  }
  if (now.last_commit == WallTime()) return report;
  const auto millis = [](double seconds) { return Millis(static_cast<int64_t>(seconds * 1000)); };
  report.publish_lag = millis(now.stages.occurred_to_published);
  report.receive_lag = millis(now.stages.published_to_received);
  report.commit_lag = millis(now.stages.received_to_committed);
  return report;
}

GroupStatus Group::status() const {
  GroupStatus status{.name = context_.options.name,
                     .subscription = context_.options.subscription,
                     .file = context_.options.file};
  std::shared_ptr<Session> session;
  {
    std::lock_guard lock(mu_);
    status.state = state_;
    status.reason = reason_;
    status.epoch = under_.epoch;
    status.generation = under_.generation;
    status.slot = under_.slot;
    status.last_turn = last_turn_;
    status.database_ok = database_ok_;
    status.database_error = database_error_;
    session = session_;
  }
  status.last_commit = context_.metrics.last_commit();
  status.last_heartbeat = context_.metrics.last_heartbeat();
  status.lag = context_.metrics.lag();
  status.stages = context_.metrics.stages();
  status.counts = context_.metrics.counts();
  if (session) {
    status.stream = session->stream_state();
    status.lanes = session->lanes();
  }
  const bool caught_up = status.ready() && InHand(status) == 0;
  std::lock_guard lock(mu_);
  if (caught_up) caught_up_ = Clock::System().Now();
  status.caught_up = caught_up_;
  return status;
}

Millis Group::inbox_retention() const {
  std::lock_guard lock(mu_);
  return inbox_retention_;
}

bool Group::DrainedFor(Millis quiet) const {
  std::shared_ptr<Session> session;
  {
    std::lock_guard lock(mu_);
    session = session_;
  }
  return session && session->connected() && session->idle() && session->quiet() >= quiet;
}

}  // namespace lockstep::runner
