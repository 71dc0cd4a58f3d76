#include "sagas/engine/dispatcher.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/pooler.h"

namespace lockstep::sagas {
namespace {

// A writer commits soon as a rule; one that takes long is looked after less and less often.
constexpr RetryPolicy kWriterPolicy{
    .max_attempts = 0, .base = Millis(1), .cap = Millis(250), .jitter = RetryPolicy::Jitter::kFull};

SteadyTime Now() { return Clock::System().Steady(); }

Millis Until(SteadyTime time) { return std::chrono::ceil<Millis>(time - Now()); }

}  // namespace

void Dispatcher::Run() {
  std::optional<SteadyTime> end;  // of what a stop waits for
  while (!parts_.crashed) {
    if (parts_.draining) {
      if (!end) {
        end = Now() + parts_.options.drain;
        parts_.hand.QueueAll();  // those without a call under way are given back
      }
      if (parts_.hand.size() == 0 || Now() >= *end) break;
    }
    absl::Status turned;
    try {
      turned = Turn();
    } catch (const SeamCrash&) {
      parts_.crashed = true;
      parts_.stop.request_stop();
      return;
    }
    if (turned.ok()) {
      if (backoff_.attempts() > 0) parts_.events.OnDatabase(absl::OkStatus());
      backoff_.Reset();
      parts_.last_turn = Now();
      continue;
    }
    parts_.events.OnDatabase(turned);
    session_.reset();
    armed_ = false;
    look_ = true;
    parts_.wake.Wait(-1, backoff_.Next());
  }
}

absl::Status Dispatcher::Open() {
  if (session_ != nullptr && !session_->broken()) return absl::OkStatus();
  armed_ = false;
  const postgres::ConnectionOptions options{
      .url = parts_.options.database,
      .application_name = "lockstep-orchestrator claims",
      .statement_timeout = Millis(20'000),
      // What it claims and renews may be lost: then it is claimed again.
      .settings = ""};
  ASSIGN_OR_RETURN(auto session, postgres::Connection::Open(options));
  RETURN_IF_ERROR(postgres::RefuseTransactionPooler(*session, options));
  RETURN_IF_ERROR(session->Run("SET synchronous_commit = off"));
  RETURN_IF_ERROR(session->Listen("lockstep_saga"));
  session_ = std::move(session);
  look_ = true;
  return absl::OkStatus();
}

absl::Status Dispatcher::Turn() {
  RETURN_IF_ERROR(Open());
  if (Now() >= next_renewal_) RETURN_IF_ERROR(Renew());
  if (look_ && !parts_.draining) {
    ASSIGN_OR_RETURN(const bool more, Claim());
    if (more) return absl::OkStatus();
  }
  return Rest();
}

absl::Status Dispatcher::Renew() {
  next_renewal_ = Now() + parts_.options.heartbeat;
  const std::vector<Lease> leases = parts_.hand.Leases();
  if (leases.empty()) return absl::OkStatus();
  parts_.Seam("renew");
  const SteadyTime until = Now() + parts_.options.lease;
  LeaseStore store(*session_);
  ASSIGN_OR_RETURN(const auto ours, store.Renew(leases, parts_.options.lease));
  parts_.hand.Renewed(leases, ours, until);
  return absl::OkStatus();
}

absl::StatusOr<bool> Dispatcher::Claim() {
  EngineLimits limits;
  {
    const std::scoped_lock lock(parts_.mu);
    limits = parts_.limits;
  }
  const int room = limits.in_hand - static_cast<int>(parts_.hand.size());
  const size_t low = 2 * static_cast<size_t>(parts_.options.workers);
  if (room <= 0 || parts_.hand.queued() >= low) return false;
  const int most = std::min(room, 8 * parts_.options.workers);
  std::map<std::string, int> rooms;
  if (!limits.definitions.empty()) {
    std::map<std::string, int> counts = parts_.hand.CountByDefinition();
    for (const auto& [name, limit] : limits.definitions) {
      rooms[name] = std::max(0, limit - counts[name]);
    }
  }
  const SteadyTime until = Now() + parts_.options.lease;
  if (parts_.hand.size() == 0) next_renewal_ = Now() + parts_.options.heartbeat;
  parts_.Seam("claim");
  LeaseStore store(*session_);
  ASSIGN_OR_RETURN(const auto claimed,
                   store.Claim(parts_.options.owner, parts_.options.lease, most, rooms));
  parts_.Seam("claimed");
  planned_ = false;
  if (claimed.empty()) {
    look_ = false;
    return false;
  }
  RETURN_IF_ERROR(Disarm());
  std::vector<Lease> leases;
  std::map<std::string, Claimed::News> news;
  for (const Claimed& one : claimed) {
    leases.push_back(one.lease);
    news[one.lease.saga] = one.news;
  }
  WorkStore reader(*session_);
  ASSIGN_OR_RETURN(auto loaded, reader.Load(leases));
  for (LoadedSaga& one : loaded) {
    const auto held = std::make_shared<Held>(std::move(one));
    parts_.events.OnClaimed(held->saga, news[held->id]);
    parts_.hand.Add(held, until);
  }
  return true;
}

absl::Status Dispatcher::Disarm() {
  writers_ = 0;
  if (!std::exchange(armed_, false)) return absl::OkStatus();
  return LeaseStore(*session_).WakeUnlock();
}

SteadyTime Dispatcher::NextOfOwn(SteadyTime now, SteadyTime at_most) {
  const std::scoped_lock lock(parts_.mu);
  for (const SteadyTime time : parts_.soon) {
    if (time <= now) look_ = true;
    at_most = std::min(at_most, time);
  }
  std::erase_if(parts_.soon, [&](SteadyTime time) { return time <= now; });
  return at_most;
}

// After a look that found nothing: how long until the next.
absl::Status Dispatcher::PlanRest() {
  if (std::exchange(planned_, true)) return absl::OkStatus();
  bool writer = false;
  if (!armed_) {
    ASSIGN_OR_RETURN(const auto lock, LeaseStore(*session_).TryWakeLock());
    if (lock == LeaseStore::WakeLock::kTaken) {
      armed_ = true;
      look_ = true;  // once more, now that whoever writes will say so
      return absl::OkStatus();
    }
    writer = lock == LeaseStore::WakeLock::kWriter;
  }
  writers_ = writer ? writers_ + 1 : 0;
  const auto between = parts_.options.poll_interval - parts_.options.poll_floor;
  next_look_ =
      Now() +
      (writer ? kWriterPolicy.Delay(writers_, random_())
              : parts_.options.poll_floor +
                    Millis(static_cast<int64_t>(random_() * static_cast<double>(between.count()))));
  return absl::OkStatus();
}

absl::Status Dispatcher::Rest() {
  const bool idle = !look_ && !parts_.draining;
  if (idle) RETURN_IF_ERROR(PlanRest());
  SteadyTime until = NextOfOwn(Now(), idle ? next_look_ : Now() + parts_.options.poll_interval);
  if (idle && look_) return absl::OkStatus();
  if (parts_.hand.size() > 0) until = std::min(until, next_renewal_);
  if (const auto due = parts_.hand.QueueDue(Now())) until = std::min(until, *due);
  // One that came with the answer to the last statement is not on the socket any more.
  ASSIGN_OR_RETURN(auto told, session_->TakeNotifications());
  if (told.empty()) {
    parts_.wake.Wait(session_->socket(), std::max(Millis(0), Until(until)));
    ASSIGN_OR_RETURN(told, session_->TakeNotifications());
    if (session_->broken()) return Unavailable("the session was ended");
  }
  for (const postgres::Notification& notification : told) {
    notification.payload.empty() ? void(look_ = true) : parts_.hand.Touch(notification.payload);
  }
  if (idle && Now() >= next_look_) look_ = true;
  return absl::OkStatus();
}

void Dispatcher::GiveBack() {
  const std::vector<Lease> leases = parts_.hand.Leases();
  if (leases.empty() || !Open().ok()) return;
  const absl::Status given = LeaseStore(*session_).ReleaseAll(leases);
  if (!given.ok()) {
    log::Fault("leases of sagas could not be given back; they end by themselves",
               {{"error", given}});
  }
}

}  // namespace lockstep::sagas
