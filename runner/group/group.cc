#include "runner/group/group.h"

#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "platform/version.h"
#include "runner/status/health.h"
#include "state/groups/overview.h"

namespace lockstep::runner {

Group::Group(GroupOptions options, std::unique_ptr<projections::Projector> projector,
             const GroupEnvironment& environment)
    : context_(std::move(options), std::move(projector), environment),
      instances_(context_.schema, context_.epochs.group()),
      checkpoints_(context_.schema, context_.epochs, environment.transport.admin(),
                   {.enabled = context_.options.checkpoints,
                    .every = context_.options.checkpoint_every,
                    .keep = context_.options.checkpoint_keep}),
      connections_(context_.connection(), context_.options.name),
      status_{.name = context_.options.name,
              .subscription = context_.options.subscription,
              .file = context_.options.file} {
  connections_.accept = [this](postgres::Connection& connection) {
    return context_.witness.Meet(connection);
  };
}

absl::Status Group::Start() {
  return thread_.Start([this] { Run(); });
}

void Group::Stop() {
  thread_.RequestStop();
  // The group's thread may be busy with a checkpoint.
  if (const auto under_way = session()) under_way->Close();
  thread_.Stop();
}

void Group::Reconfigure(const FollowedOptions& fresh) {
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
  static_cast<FollowedOptions&>(context_.options) = *fresh_options_;
  fresh_options_.reset();
}

std::shared_ptr<Session> Group::session() const {
  std::lock_guard lock(mu_);
  return session_;
}

void Group::SetSession(std::shared_ptr<Session> session) {
  std::lock_guard lock(mu_);
  session_ = std::move(session);
  if (session_) inbox_retention_ = context_.options.inbox_retention;
}

void Group::NoteTurn() {
  std::lock_guard lock(mu_);
  status_.last_turn = Clock::System().Now();
}

// A loss is told while it runs, for an idle group has no transaction that would fail; one that
// waits or halts says so itself. The end of what was told is told in whatever state.
void Group::NoteDatabase(const absl::Status& answer) {
  std::optional<Millis> gone;
  bool lost = false;
  {
    std::lock_guard lock(mu_);
    const bool was_lost = !status_.database_error.empty();
    const WallTime now = Clock::System().Now();
    if (told_of_loss_ && answer.ok()) {
      gone = std::chrono::duration_cast<Millis>(now - status_.database_ok);
    }
    lost = status_.state == GroupState::kRunning && !was_lost && !answer.ok();
    told_of_loss_ = lost || (told_of_loss_ && !answer.ok());
    status_.database_error = MessageOf(answer);  // empty when it is OK
    if (answer.ok()) status_.database_ok = now;
  }
  if (lost) {
    log::Warning("the database does not answer; nothing is applied or acked meanwhile",
                 {{"group", context_.options.name}, {"error", answer}});
  } else if (gone) {
    log::Info("the database answers again",
              {{"group", context_.options.name}, {"gone_ms", gone->count()}});
  }
}

// To who was told that the group waits, and of no loss before.
void Group::TellThatItAnswers() {
  {
    std::lock_guard lock(mu_);
    if (told_of_loss_) return;  // NoteDatabase says it, and for how long it was gone
  }
  log::Info("the database answers again", {{"group", context_.options.name}});
}

// Under `cause`: it says what to do, and mask_keys hides what is called `reason`.
void Group::SetState(GroupState state, const std::string& reason) {
  {
    std::lock_guard lock(mu_);
    if (status_.state == state && status_.reason == reason) return;
    status_.state = state;
    status_.reason = reason;
  }
  if (state == GroupState::kHalted) {
    log::Error("the group has halted", {{"group", context_.options.name}, {"cause", reason}});
  } else if (state == GroupState::kWaiting) {
    log::Warning("the group is waiting", {{"group", context_.options.name}, {"cause", reason}});
  } else {
    log::Info("the group is " + std::string(Name(state)),
              {{"group", context_.options.name}, {"cause", reason}});
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
      if (!connections_.Get(stop).ok()) break;
      TellThatItAnswers();
      continue;
    }
    ReadyToRun ready;
    const absl::Status prepared = MakeReady(context_, **connection, ready);
    if (ready.under.epoch != 0) SetUnder(**connection, ready);
    if (prepared.ok()) {
      // Before it can write: a rebuild's swap must know of its mapping.
      const absl::Status told = instances_.Heartbeat(**connection, context_.environment.instance,
                                                     Report(context_.metrics.handled()));
      if (told.ok()) {
        RunSession(ready);
      } else {
        Wait(absl::UnavailableError(told.message()));
      }
    } else {
      Wait(prepared);
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

void Group::Wait(const absl::Status& obstacle) {
  const bool paused = absl::IsCancelled(obstacle);
  const bool passes = absl::IsUnavailable(obstacle);
  SetState(paused   ? GroupState::kPaused
           : passes ? GroupState::kWaiting
                    : GroupState::kHalted,
           std::string(MessageOf(obstacle)));
  TellThatItWaits();
  SleepUnlessStopped(thread_.stop_token(), passes || paused ? context_.environment.poll
                                                            : context_.environment.retry_halt);
}

// So that `lockstepctl lag` tells a group that halts or waits from one that nobody runs.
void Group::TellThatItWaits() {
  if (status_.epoch == 0) return;
  const auto connection = connections_.Try();
  if (!connection.ok()) return;
  instances_
      .Heartbeat(**connection, context_.environment.instance, Report(context_.metrics.handled()))
      .IgnoreError();
}

// Whoever noticed it first, a lane or this loop: a new epoch is told here, with who began it, why,
// from where to where, as the audit has it.
void Group::SetUnder(postgres::Connection& connection, const ReadyToRun& ready) {
  const state::GroupEpoch& under = ready.under;
  if (status_.epoch != 0 && status_.epoch != under.epoch) {
    const auto rows =
        state::Overview(context_.schema).History(connection, context_.epochs.group(), 1);
    const auto text = [&](std::string_view column) {
      return rows.ok() && !rows->empty() ? (*rows)[0].String(column) : std::string();
    };
    log::Info("the epoch has changed", {{"group", context_.options.name},
                                        {"epoch", under.epoch},
                                        log::IfAny("action", text("action")),
                                        log::IfAny("operator", text("operator")),
                                        log::IfAny("reason", text("reason")),
                                        log::IfAny("old", text("old")),
                                        log::IfAny("new", text("new"))});
  }
  std::lock_guard lock(mu_);
  status_.epoch = under.epoch;
  status_.generation = under.generation;
  status_.slot = under.slot;
  status_.subscription = under.subscription;  // a rebuild's, whatever the configuration names
  status_.topic = ready.topic;
}

void Group::RunSession(const ReadyToRun& ready) {
  const auto session = std::make_shared<Session>(context_, ready.under);
  SetSession(session);
  absl::Status end;
  const int64_t before = context_.metrics.handled();
  const absl::Status started = session->Start(ready.release);
  next_look_for_left_ = Clock::System().Steady() + context_.environment.look_for_left;
  if (started.ok()) {
    SetState(GroupState::kRunning, "");
    while (end.ok() && !thread_.stopping()) {
      if (EpochChanged(ready.under, before, *session) || HasFreshOptions()) break;
      end = session->WaitFor(context_.environment.poll, thread_.stop_token());
      NoteTurn();
    }
  }
  const bool finish = thread_.stopping() || HasFreshOptions();
  session->Stop(finish ? context_.environment.drain : Millis(0));
  SetSession(nullptr);
  if (!started.ok()) return Wait(absl::UnavailableError(started.message()));
  if (thread_.stopping()) return;
  // Whatever else ended the session, or was in another lane's way.
  for_good_ = context_.budget.exceeded();
  if (for_good_) return Wait(absl::FailedPreconditionError(context_.budget.Reason()));
  if (!end.ok() && !state::IsStaleEpoch(end)) Wait(end);
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
  if (now->epoch == under.epoch && now->token == under.token && now->paused.empty()) {
    ReleaseWhatWasLeft(**connection, under, session);
    // A database that went back must not get a checkpoint: the way to a session looks into it.
    return context_.witness.WentBack(**connection, *now) || checkpoints_.Tick(**connection, under);
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
  const auto keys = context_.batch.key_states().Releasable(connection, under.generation, kKeys,
                                                           context_.batch.minds_gaps());
  if (!keys.ok() || keys->empty()) return;
  log::Info("parked events were left due and are released",
            {{"group", context_.options.name}, {"aggregates", keys->size()}});
  session.Release(*keys);
}

state::InstanceReport Group::Report(int64_t before) {
  const GroupStatus now = status();
  const WallTime at = Clock::System().Now();
  const HonestLag lag = LagOf(now, at, context_.environment.health);
  state::InstanceReport report{.epoch = now.epoch,
                               .lanes = context_.options.lanes,
                               .handled = context_.metrics.handled() - before,
                               .queued = now.in_hand(),
                               .lag = lag.lag,
                               .lag_basis = lag.basis,
                               .state = StateWord(now, lag.lag, at, context_.environment.health),
                               .mapping = context_.projector->Mapping(),
                               .snapshots_open = now.snapshots_stream.empty(),
                               .address = context_.environment.address,
                               .version = kVersion,
                               .started_at = context_.environment.started_at};
  if (now.last_heartbeat != WallTime()) report.heartbeat = now.last_heartbeat;
  for (const LaneStatus& lane : now.lanes) {
    if (lane.in_hand() == 0) report.idle_lanes.push_back(lane.lane);
  }
  if (now.last_commit == WallTime()) return report;
  const auto millis = [](double seconds) { return Millis(static_cast<int64_t>(seconds * 1000)); };
  report.publish_lag = millis(now.stages.occurred_to_published);
  report.receive_lag = millis(now.stages.published_to_received);
  report.commit_lag = millis(now.stages.received_to_committed);
  return report;
}

GroupStatus Group::status() const {
  std::unique_lock lock(mu_);
  GroupStatus status = status_;
  const std::shared_ptr<Session> session = session_;
  lock.unlock();
  context_.metrics.Fill(status);
  if (session) {
    status.stream = session->stream_state();
    status.snapshots_stream = session->snapshots_state();
    status.lanes = session->lanes();
  }
  lock.lock();
  if (status.ready() && status.in_hand() == 0) status_.caught_up = Clock::System().Now();
  status.caught_up = status_.caught_up;
  return status;
}

Millis Group::inbox_retention() const {
  std::lock_guard lock(mu_);
  return inbox_retention_;
}

bool Group::DrainedFor(Millis quiet) const {
  const auto under_way = session();
  return under_way && under_way->DrainedFor(quiet);
}

}  // namespace lockstep::runner
