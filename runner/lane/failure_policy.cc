#include "runner/lane/failure_policy.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "platform/daemon/service_thread.h"
#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::runner {
namespace {

const RetryPolicy kRetry{.max_attempts = 0,
                         .base = Millis(50),
                         .cap = Millis(5'000),
                         .jitter = RetryPolicy::Jitter::kFull};

// A full disk lets a small transaction through and a larger one not, a database that may only be
// read lets a probe through, and so does one who holds the lock of a row: no probe clears them, and
// no event is to blame however long they last.
bool NobodysFault(const absl::Status& failed) {
  constexpr std::string_view kDiskFull = "53100", kReadOnly = "25006", kLocked = "55P03";
  const std::string state = postgres::SqlState(failed);
  return state == kDiskFull || state == kReadOnly || state == kLocked;
}

// A server that is restarted ends the transactions of suspects and others alike.
bool LostConnection(const absl::Status& failed) {
  const std::string state = postgres::SqlState(failed);
  return state.starts_with("08") || state.starts_with("57P") ||
         postgres::Classify(failed) == postgres::ErrorClass::kInDoubt;
}

// What a handler asks for with Retry-After is heard, up to this: it may be back sooner.
constexpr Millis kLongestPause{5 * 60'000};

absl::Status Stopped() { return absl::CancelledError("it was stopped"); }

// What stands behind an event that a handler has not accepted yet waits with it, called or not,
// copies and snapshots too: the aggregate's order holds for all that hear of it.
void HoldBehindUnanswered(const std::vector<Inbound*>& items) {
  std::map<std::string_view, int64_t> first;
  for (const Inbound* const item : items) {
    if (!item->unanswered) continue;
    const int64_t version = item->event.version;
    const auto [found, added] = first.try_emplace(item->aggregate_key, version);
    if (!added) found->second = std::min(found->second, version);
  }
  for (Inbound* const item : items) {
    const auto found = first.find(item->aggregate_key);
    if (found != first.end() && item->event.version >= found->second) item->unanswered = true;
  }
}

}  // namespace

absl::Status FailurePolicy::Process(std::span<Inbound* const> items) {
  parts_.clear();
  parts_.push_back({.items = {items.begin(), items.end()}});
  return WorkOff();
}

absl::Status FailurePolicy::Release(const std::vector<std::string>& keys) {
  parts_.clear();
  AddReleases(keys);
  return WorkOff();
}

void FailurePolicy::AddReleases(const std::vector<std::string>& keys) {
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) parts_.push_back({.key = *key});
}

absl::Status FailurePolicy::WorkOff() {
  const absl::Status end = WorkOffParts();
  // What is in nobody's hands any longer is called again if it comes again.
  if (outside_ != nullptr) outside_->Forget();
  return end;
}

absl::Status FailurePolicy::WorkOffParts() {
  while (!parts_.empty()) {
    if (calls_at_once_ > 0 && parts_.back().items.size() > calls_at_once_) TakeOff(calls_at_once_);
    Part& part = parts_.back();
    if (part.outages_in_a_row > 0 && closing_.stop_requested()) return Stopped();
    if (const auto rest = part.not_before - Clock::System().Steady();
        rest > SteadyTime::duration::zero() &&
        SleepUnlessStopped(closing_, std::chrono::ceil<Millis>(rest))) {
      return Stopped();
    }
    if (options_.dead_letter == DeadLetterTo::kPubsub) GiveBackPoison(part);
    if (part.items.empty() && part.key.empty()) {
      parts_.pop_back();
      continue;
    }
    if (stop_.stop_requested()) return Stopped();
    ASSIGN_OR_RETURN(postgres::Connection* const connection, connections_.Get(stop_));
    const auto result = Try(*connection, part);
    // Its COMMIT may have been cancelled while it waited for a standby, and a server that speaks
    // another language has not told us: it comes again, and the inbox knows whether it is there.
    if (result.ok() && stop_.stop_requested()) return Stopped();
    if (result.ok() && !result->rolled_back) {
      if (part.items.size() >= calls_at_once_) calls_at_once_ *= 2;
      Committed(part, *result);
      parts_.pop_back();
      AddReleases(result->unfinished);
      continue;
    }
    RETURN_IF_ERROR(result.ok() ? AfterRollback(part, *result)
                                : AfterFailure(part, result.status()));
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> FailurePolicy::Try(postgres::Connection& connection, Part& part) {
  part.limits.max_dead = budget_.Left();
  part.limits.outside = outside_;
  part.loaded = {};
  if (part.parked()) {
    return batch_.Release(connection, under_, {part.key}, part.limits, &part.loaded);
  }
  return batch_.Run(connection, under_, lane_, part.items, part.limits);
}

void FailurePolicy::Committed(const Part& part, const BatchResult& result) {
  budget_.Spend(result.dead);
  if (const WallTime first = OldestOf(part.items);
      first != WallTime::max() && first < under_.first_publish_time.value_or(WallTime::max())) {
    under_.first_publish_time = first;
  }
  observer_.OnCommitted(part.items, result);
}

void FailurePolicy::GiveBackPoison(Part& part) {
  std::vector<Inbound*> poisoned;
  std::erase_if(part.items, [&](Inbound* item) {
    if (item->poison) poisoned.push_back(item);
    return item->poison.has_value();
  });
  if (!poisoned.empty()) observer_.OnGivenBack(poisoned);
}

// Nothing failed, and still nothing was committed: more would be dead than allowed, or events
// turned out to conflict. Messages carry that as their poison now.
absl::Status FailurePolicy::AfterRollback(Part& part, const BatchResult& result) {
  part.faults_in_a_row = part.faults_against = 0;
  if (result.too_many_dead) {
    // Those that are still allowed to die are written, or a restart would meet the same batch
    // again.
    if (part.limits.max_dead > 0 ? Narrow(part) : LeaveParked(part)) return absl::OkStatus();
    budget_.Exceed();
    return absl::FailedPreconditionError(budget_.Reason());
  }
  if (part.parked()) {
    part.limits.marked_dead.insert(part.limits.marked_dead.end(), result.parked_conflicts.begin(),
                                   result.parked_conflicts.end());
  } else if (!result.parked_conflicts.empty()) {
    LeaveParked(part);
  }
  return result.outage ? AfterOutage(part, result) : absl::OkStatus();
}

// Handlers have not accepted all of it. What they have is committed now, without a further call;
// the rest comes after it, when they may be asked again.
absl::Status FailurePolicy::AfterOutage(Part& part, const BatchResult& result) {
  Millis pause{0};
  const std::string& reason = result.outage->reason;
  if (!reason.empty()) {
    pause = std::clamp(result.outage->retry_after.value_or(Millis(0)),
                       kRetry.Delay(++part.outages_in_a_row, random_()), kLongestPause);
    observer_.OnOutage(part.items, reason, pause);
  }
  const SteadyTime not_before = Clock::System().Steady() + pause;
  if (part.parked()) {
    const int through = result.parked_answered + static_cast<int>(result.parked_conflicts.size());
    if (through > 0) {
      part.limits.max_events = through;
    } else {
      part.not_before = not_before;
    }
    return absl::OkStatus();
  }
  LeaveParked(part);
  HoldBehindUnanswered(part.items);
  Part rest = part;
  std::erase_if(rest.items, [](const Inbound* item) { return !item->unanswered; });
  if (rest.items.empty()) return absl::OkStatus();  // only some that waited: they go by themselves
  rest.not_before = not_before;
  const size_t accepted = part.items.size() - rest.items.size();
  if (reason.empty()) calls_at_once_ = std::max<size_t>(1, accepted);
  std::erase_if(part.items, [](const Inbound* item) { return item->unanswered; });
  if (part.items.empty()) {
    part = std::move(rest);
    return absl::OkStatus();
  }
  Part done = std::move(part);
  parts_.back() = std::move(rest);
  parts_.push_back(std::move(done));
  return absl::OkStatus();
}

// The first ones of the next part, in the order of their coming, become a part of their own.
void FailurePolicy::TakeOff(size_t first) {
  Part head = parts_.back();
  std::vector<Inbound*>& items = parts_.back().items;
  head.items.resize(first);
  items.erase(items.begin(), items.begin() + static_cast<int64_t>(first));
  parts_.push_back(std::move(head));
}

absl::Status FailurePolicy::AfterFailure(Part& part, const absl::Status& failed) {
  const std::string waits_for = WhoLocksATable(failed);
  if (absl::IsCancelled(failed) && stop_.stop_requested()) return Stopped();
  observer_.OnFailure(failed, part.items, waits_for);
  if (state::IsStaleEpoch(failed)) return failed;
  switch (postgres::Classify(failed)) {
    case postgres::ErrorClass::kData:
      return Blame(part, failed, 1);
    case postgres::ErrorClass::kConfiguration:
      return absl::FailedPreconditionError(failed.message());
    case postgres::ErrorClass::kTransient:
    case postgres::ErrorClass::kInDoubt:
      break;
  }
  // The statement may have been cancelled by ourselves, so that the lane ends: nobody is to blame.
  if (stop_.stop_requested()) return Stopped();
  ++part.faults_in_a_row;
  part.faults_against = NobodysFault(failed) || !waits_for.empty() ? 0 : part.faults_against + 1;
  const bool at_once = part.suspected && !part.FirstIsMarkedDead() && !LostConnection(failed);
  if (part.faults_against >= (at_once ? 1 : options_.transient_tries)) {
    if (ProbeCommits()) return Blame(part, failed, at_once ? 1 : part.faults_against);
    part.faults_against = 0;
  }
  const Millis pause = kRetry.Delay(part.faults_in_a_row, random_());
  if (SleepUnlessStopped(stop_, pause)) return Stopped();
  return absl::OkStatus();
}

// Somebody who makes an index, alters a table or empties it stops every event that is written
// there: as little an event's fault as a full disk. Asked while the lock is still there, after each
// failure that may come of one.
std::string FailurePolicy::WhoLocksATable(const absl::Status& failed) {
  constexpr std::string_view kMayBeLocks[] = {"57014", "55P03", "40P01"};
  if (std::ranges::find(kMayBeLocks, postgres::SqlState(failed)) == std::end(kMayBeLocks))
    return "";
  const auto connection = connections_.Try();
  if (!connection.ok()) return "";
  return batch_.WhoLocksATable(**connection).value_or("");
}

// Whether the database takes a transaction of this group at all: not while a reset or a swap holds
// the epoch's lock.
bool FailurePolicy::ProbeCommits() {
  const auto connection = connections_.Try();
  if (!connection.ok() || !batch_.Confirm(**connection, under_).ok()) return false;
  auto probe = (*connection)->Begin();
  if (!probe.ok()) return false;
  // It writes to the WAL, so that its commit waits for what a batch's commit waits for: the disk,
  // and a synchronous standby.
  constexpr std::string_view kWrite =
      "SELECT pg_logical_emit_message(true, 'lockstep.probe', 'a transaction')";
  return probe->Execute(kWrite).ok() && probe->Commit().ok();
}

}  // namespace lockstep::runner
