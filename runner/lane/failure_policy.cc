#include "runner/lane/failure_policy.h"

#include <algorithm>
#include <utility>

#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::runner {
namespace {

Poison PoisonOf(const absl::Status& failed) {
  const std::string sqlstate = postgres::SqlState(failed);
  const bool blamed = postgres::Classify(failed) != postgres::ErrorClass::kData;
  return {blamed ? "EVENT.NEVER_COMMITS" : "EVENT.REFUSED_BY_DATABASE",
          fmt::format("{} (SQLSTATE {})", MessageOf(failed), sqlstate.empty() ? "?" : sqlstate)};
}

// A full disk lets a small transaction through and a larger one not: no probe clears it, and no
// event is to blame however long it lasts.
bool NobodysFault(const absl::Status& failed) {
  constexpr std::string_view kDiskFull = "53100";
  return postgres::SqlState(failed) == kDiskFull;
}

}  // namespace

FailurePolicy::FailurePolicy(const Batch& batch, ConnectionSource& connections,
                             state::GroupEpoch under, LaneIdentity lane, FailureOptions options,
                             DeadLetterBudget& budget, BatchObserver& observer,
                             std::stop_token stop)
    : batch_(batch),
      connections_(connections),
      under_(std::move(under)),
      lane_(std::move(lane)),
      options_(std::move(options)),
      budget_(budget),
      observer_(observer),
      stop_(std::move(stop)) {}

Verdict FailurePolicy::Process(std::span<Inbound* const> items) {
  return Process(items, /*suspected=*/false, ReleaseLimits{});
}

Verdict FailurePolicy::Process(std::span<Inbound* const> items, bool suspected,
                               ReleaseLimits limits) {
  std::vector<Inbound*> sound;
  if (options_.to_pubsub) {
    sound = WithoutPoison(items);
    items = sound;
  }
  if (items.empty()) return Verdict::kDone;
  for (Faults faults;;) {
    if (stop_.stop_requested()) return Verdict::kStopped;
    postgres::Connection* const connection = connections_.Get(stop_);
    if (connection == nullptr) return Verdict::kStopped;
    limits.max_dead = budget_.Left();
    const auto result = batch_.Run(*connection, under_, lane_, items, limits);
    if (result.ok() && result->rolled_back) return RunAgain(items, suspected, limits, *result);
    if (result.ok()) {
      Committed(items, *result);
      return Release(result->unfinished);
    }
    observer_.OnFailure(result.status(), items);
    Verdict verdict = Verdict::kDone;
    switch (Judge(result.status(), faults, suspected, verdict)) {
      case Step::kAgain:
        continue;
      case Step::kEnd:
        return verdict;
      case Step::kBlame:
        break;
    }
    const int blamed = Blamed(result.status(), faults);
    for (Inbound* item : items) item->attempts += blamed;
    // A refusal names its cause; only faults that should have passed make a batch suspect.
    suspected = suspected || postgres::Classify(result.status()) != postgres::ErrorClass::kData;
    if (items.size() > 1) return Split(items, suspected);
    // Alone, and without what waits behind it: the fault may be theirs.
    if (limits.max_events > 0) return Process(items, suspected, {.max_events = 0});
    Inbound& item = *items.front();
    if (item.poison) {
      return Halt(fmt::format("a dead letter can't be written: {}", MessageOf(result.status())));
    }
    if (item.attempts < options_.max_attempts) continue;
    item.poison = PoisonOf(result.status());
    return Process(items, /*suspected=*/false, limits);
  }
}

Verdict FailurePolicy::RunAgain(std::span<Inbound* const> items, bool suspected,
                                const ReleaseLimits& limits, const BatchResult& result) {
  // Those that are still allowed to die are written, or a restart would meet the same batch again.
  if (result.too_many_dead && items.size() > 1 && limits.max_dead > 0) {
    return Split(items, suspected);
  }
  if (result.too_many_dead && limits.max_events == 0) return HaltOverBudget();
  // What waits is left to transactions of its own: a fault there is not theirs.
  const bool alone = result.too_many_dead || !result.parked_conflicts.empty();
  return Process(items, suspected, alone ? ReleaseLimits{.max_events = 0} : limits);
}

Verdict FailurePolicy::Split(std::span<Inbound* const> items, bool suspected) {
  // Sorted, so that the events of an aggregate stay in order over the two transactions.
  std::vector<Inbound*> sorted(items.begin(), items.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const Inbound* a, const Inbound* b) {
    return std::tie(a->aggregate_key, a->event.version) <
           std::tie(b->aggregate_key, b->event.version);
  });
  const std::span<Inbound* const> all(sorted);
  const size_t half = all.size() / 2;
  const Verdict first = Process(all.first(half), suspected, {.max_events = 0});
  if (first != Verdict::kDone) return first;
  return Process(all.subspan(half), suspected, {.max_events = 0});
}

FailurePolicy::Step FailurePolicy::Judge(const absl::Status& failed, Faults& faults, bool suspected,
                                         Verdict& verdict) {
  if (state::IsStaleEpoch(failed)) {
    verdict = Verdict::kStaleEpoch;
    return Step::kEnd;
  }
  switch (postgres::Classify(failed)) {
    case postgres::ErrorClass::kData:
      return Step::kBlame;
    case postgres::ErrorClass::kConfiguration:
      verdict = Halt(std::string(MessageOf(failed)));
      return Step::kEnd;
    case postgres::ErrorClass::kTransient:
    case postgres::ErrorClass::kInDoubt:
      break;
  }
  // The statement may have been cancelled by ourselves, so that the lane ends: nobody is to blame.
  if (stop_.stop_requested()) {
    verdict = Verdict::kStopped;
    return Step::kEnd;
  }
  ++faults.in_a_row;
  faults.against = NobodysFault(failed) ? 0 : faults.against + 1;
  const int limit = suspected ? 1 : options_.transient_tries;
  if (faults.against >= limit) {
    if (ProbeCommits()) return Step::kBlame;
    faults.against = 0;
  }
  const Millis pause = options_.retry.Delay(faults.in_a_row, random_());
  if (!SleepUnlessStopped(stop_, pause)) return Step::kAgain;
  verdict = Verdict::kStopped;
  return Step::kEnd;
}

int FailurePolicy::Blamed(const absl::Status& failed, Faults& faults) {
  const int against = std::exchange(faults, {}).against;
  return postgres::Classify(failed) == postgres::ErrorClass::kData ? 1 : against;
}

// Whether the database takes a transaction of this group at all: not while a reset or a swap holds
// the epoch's lock.
bool FailurePolicy::ProbeCommits() {
  const auto connection = connections_.Try();
  if (!connection.ok() || !batch_.Confirm(**connection, under_).ok()) return false;
  auto probe = (*connection)->Begin();
  if (!probe.ok()) return false;
  // A real transaction id, so that the commit writes something.
  return probe->Execute("SELECT pg_current_xact_id()").ok() && probe->Commit().ok();
}

std::vector<Inbound*> FailurePolicy::WithoutPoison(std::span<Inbound* const> items) {
  std::vector<Inbound*> sound, poisoned;
  for (Inbound* item : items) (item->poison ? poisoned : sound).push_back(item);
  if (!poisoned.empty()) observer_.OnGivenBack(poisoned);
  return sound;
}

Verdict FailurePolicy::Halt(std::string reason) {
  halt_reason_ = std::move(reason);
  return Verdict::kHalted;
}

Verdict FailurePolicy::HaltOverBudget() {
  budget_.Exceed();
  return Halt(budget_.Reason());
}

void FailurePolicy::Committed(std::span<Inbound* const> items, const BatchResult& result) {
  budget_.Spend(result.dead);
  for (const Inbound* item : items) {
    if (!under_.first_publish_time || item->publish_time < *under_.first_publish_time) {
      under_.first_publish_time = item->publish_time;
    }
  }
  observer_.OnCommitted(items, result);
}

Verdict FailurePolicy::Release(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    const Verdict verdict = ReleaseOne(key);
    if (verdict != Verdict::kDone) return verdict;
  }
  return Verdict::kDone;
}

Verdict FailurePolicy::ReleaseOne(const std::string& key) {
  ReleaseLimits limits;
  bool suspected = false;
  EventId alone;     // the one that failed alone last …
  int attempts = 0;  // … and how often
  for (Faults faults;;) {
    if (stop_.stop_requested()) return Verdict::kStopped;
    postgres::Connection* const connection = connections_.Get(stop_);
    if (connection == nullptr) return Verdict::kStopped;
    Loaded loaded;
    limits.max_dead = budget_.Left();
    const auto result = batch_.Release(*connection, under_, {key}, limits, &loaded);
    if (result.ok() && !result->parked_conflicts.empty()) {
      limits.condemned.insert(limits.condemned.end(), result->parked_conflicts.begin(),
                              result->parked_conflicts.end());
      continue;
    }
    if (result.ok() && result->too_many_dead) {
      if (limits.max_dead > 0 && ReleaseLess(loaded, limits)) continue;
      return HaltOverBudget();
    }
    if (result.ok()) {
      Committed({}, *result);
      if (result->unfinished.empty()) return Verdict::kDone;
      limits = {};
      faults = {};
      suspected = false;
      continue;
    }
    observer_.OnFailure(result.status(), {});
    const bool dies = Condemns(limits, loaded.first);
    Verdict verdict = Verdict::kDone;
    switch (Judge(result.status(), faults, suspected && !dies, verdict)) {
      case Step::kAgain:
        continue;
      case Step::kEnd:
        return verdict;
      case Step::kBlame:
        break;
    }
    const int blamed = Blamed(result.status(), faults);
    const bool refused = postgres::Classify(result.status()) == postgres::ErrorClass::kData;
    if (loaded.events == 0 && !refused) continue;  // somebody holds the key
    if (loaded.events == 0 || (dies && loaded.events == 1)) {
      return Halt(fmt::format("parked events of {} can't be {}: {}", key,
                              dies ? "made dead letters" : "read", MessageOf(result.status())));
    }
    suspected = suspected || !refused;
    if (ReleaseLess(loaded, limits)) continue;
    // Others may release the same key: whoever was first before may be gone.
    attempts = blamed + (loaded.first == alone ? attempts : 0);
    alone = loaded.first;
    if (attempts < options_.max_attempts) continue;
    limits.condemned.push_back({alone, PoisonOf(result.status()), attempts});
  }
}

// Down to the one that is at fault; false when it is found.
bool FailurePolicy::ReleaseLess(const Loaded& loaded, ReleaseLimits& limits) {
  if (loaded.events <= 1) return false;
  limits.max_events = loaded.events / 2;
  return true;
}

bool FailurePolicy::Condemns(const ReleaseLimits& limits, const EventId& event) {
  return std::any_of(limits.condemned.begin(), limits.condemned.end(),
                     [&](const Condemned& one) { return one.event == event; });
}

}  // namespace lockstep::runner
