#include "runner/lane/failure_policy.h"

#include <algorithm>
#include <iterator>

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

absl::Status Stopped() { return absl::CancelledError("it was stopped"); }

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
  while (!parts_.empty()) {
    Part& part = parts_.back();
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
  return absl::OkStatus();
}

absl::Status FailurePolicy::AfterFailure(Part& part, const absl::Status& failed) {
  const std::string waits_for = WhoLocksATable(failed);
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
