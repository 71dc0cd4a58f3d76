// What the relay does with the bus's answers.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/status.h"
#include "publisher/dispatch/failure.h"
#include "publisher/relay/relay.h"

namespace lockstep::publisher {
namespace {

// After an ABORTED that no failure of ours explains.
constexpr Millis kAbortedDelay{250};

bool SameAggregate(const OutboxRow& a, const OutboxRow& b) {
  return a.aggregate_type == b.aggregate_type && a.tenant_id == b.tenant_id &&
         a.aggregate_id == b.aggregate_id;
}

std::string CodeOf(const DispatchResult& result) {
  return result.code.empty() ? std::string(ErrorCode(result.status)) : result.code;
}

}  // namespace

void Relay::TakeAnswers() {
  for (Mailbox::Answer& answer : mailbox_->Take()) {
    const auto found = under_way_.find(answer.request);
    if (found == under_way_.end()) continue;
    UnderWay request = std::move(found->second);
    under_way_.erase(found);
    rows_under_way_ -= request.entries.size();
    // A dispatcher that answers for fewer rows than it got is at fault; its rows are not published.
    answer.results.resize(
        request.entries.size(),
        {absl::InternalError("the dispatcher gave no answer for the row"), "", ""});
    Apply(std::move(request), std::move(answer.results));
  }
}

void Relay::Apply(UnderWay request, std::vector<DispatchResult> results) {
  const auto refused = static_cast<int>(std::count_if(
      results.begin(), results.end(),
      [](const DispatchResult& result) { return FaultOf(result.status) == Fault::kRefused; }));
  // Key by key: rows of a key stand side by side.
  size_t first = 0;
  while (first < request.entries.size()) {
    size_t last = first + 1;
    const std::string& key = request.entries[first].row->aggregate_id;
    while (last < request.entries.size() && request.entries[last].row->aggregate_id == key) ++last;
    ApplyKey(request, first, last, results, refused);
    first = last;
  }
}

void Relay::ApplyKey(const UnderWay& request, size_t first, size_t last,
                     const std::vector<DispatchResult>& results, int refused) {
  const SteadyTime now = environment_.clock->Steady();
  const auto took = std::chrono::duration_cast<Millis>(now - request.sent_at);
  const std::string key = request.entries[first].row->aggregate_id;
  std::optional<size_t> failed;
  std::vector<KeyQueues::Entry> behind;  // not delivered, after the failed one
  for (size_t i = first; i < last; ++i) {
    const KeyQueues::Entry& entry = request.entries[i];
    const bool known = FaultOf(results[i].status) == Fault::kKnown;
    if (results[i].status.ok() || known) {
      pauses_.Reached(entry.row->topic);
      if (known) {
        events_.OnDedupHit(*entry.row, took);
      } else {
        events_.OnPublished(*entry.row, took);
      }
      settlement_.Published(entry.row, results[i].message_id, now);
    } else if (!failed.has_value()) {
      failed = i;
    } else {
      behind.push_back(entry);
    }
  }
  if (!failed.has_value()) {
    queues_.Succeeded(key);
    return;
  }
  const DispatchResult& result = results[*failed];
  const KeyQueues::Entry& entry = request.entries[*failed];
  if (FaultOf(result.status) == Fault::kRefused && refused > 1) {
    // One of them is at fault: halves of halves find it.
    behind.insert(behind.begin(), entry);
    for (KeyQueues::Entry& again : behind) again.request_limit = std::max(1, refused / 2);
    queues_.SendAgain(key, std::move(behind));
    return;
  }
  for (size_t i = *failed; i < last; ++i) {
    const Fault fault = FaultOf(results[i].status);
    const bool sent =
        !results[i].status.ok() && fault != Fault::kBehind && fault != Fault::kCancelled;
    if (sent) events_.OnFailed(*request.entries[i].row, took);
  }
  for (KeyQueues::Entry& waiting : queues_.Failed(key)) behind.push_back(std::move(waiting));
  switch (FaultOf(result.status)) {
    case Fault::kRefused:
      RetryOrBury(entry, result, /*permanent=*/true, std::move(behind));
      return;
    case Fault::kRow:
      RetryOrBury(entry, result, /*permanent=*/false, std::move(behind));
      return;
    case Fault::kOutage:
      behind.insert(behind.begin(), entry);
      GiveBack(std::move(behind), Millis(0), &result);
      PauseTopic(*entry.row, result);
      return;
    case Fault::kKnown:
    case Fault::kBehind:
      behind.insert(behind.begin(), entry);
      GiveBack(std::move(behind), kAbortedDelay);
      return;
    case Fault::kCancelled:
      behind.insert(behind.begin(), entry);
      GiveBack(std::move(behind), Millis(0));
      return;
  }
}

void Relay::PauseTopic(const OutboxRow& row, const DispatchResult& result) {
  const auto pause = pauses_.Pause(row.topic, environment_.clock->Steady());
  if (!pause.has_value()) return;
  outage_ = absl::Status(
      result.status.code(),
      fmt::format("topic {} is out of reach: {}", row.topic, lockstep::MessageOf(result.status)));
  events_.OnOutage(row, CodeOf(result), result.status, *pause);
  GiveBack(queues_.TakeWaiting(
               [&](const KeyQueues::Entry& entry) { return entry.row->topic == row.topic; }),
           Millis(0));
}

void Relay::RetryOrBury(const KeyQueues::Entry& entry, const DispatchResult& result, bool permanent,
                        std::vector<KeyQueues::Entry> behind) {
  const OutboxRow& row = *entry.row;
  const int attempts = row.attempts + 1;
  RowFailure failure;
  failure.spent_attempts = 1;
  failure.error = ErrorSummary(result.status, row.payload, options_.last_error_max_bytes);
  failure.code = CodeOf(result);
  failure.dead = permanent || options_.retry.Exhausted(attempts);
  const bool skips = failure.dead && options_.on_dead == OnDead::kSkip;
  if (failure.dead) {
    events_.OnDead(row, failure.code, failure.error);
  } else {
    failure.delay = options_.retry.Delay(attempts, environment_.random());
    events_.OnRetry(row, failure.code, *failure.delay, failure.error);
  }
  settlement_.Failed(entry.row, std::move(failure), skips);
  for (KeyQueues::Entry& follower : behind) {
    RowFailure wait;
    // Behind a row that waits or is dead: held. Others of the key only lost their turn.
    if (!skips && SameAggregate(row, *follower.row)) wait.delay = std::nullopt;
    settlement_.Failed(follower.row, std::move(wait), false);
  }
}

void Relay::GiveBack(std::vector<KeyQueues::Entry> entries, Millis delay,
                     const DispatchResult* why) {
  for (KeyQueues::Entry& entry : entries) {
    RowFailure failure;
    failure.delay = delay;
    if (why != nullptr) {
      failure.error = ErrorSummary(why->status, entry.row->payload, options_.last_error_max_bytes);
      failure.code = CodeOf(*why);
    }
    settlement_.Failed(std::move(entry.row), std::move(failure), false);
  }
}

}  // namespace lockstep::publisher
