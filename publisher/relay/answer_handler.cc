#include "publisher/relay/answer_handler.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/status.h"
#include "publisher/dispatch/failure.h"

namespace lockstep::publisher {
namespace {

using Kind = RowEvent::Kind;

// After an ABORTED that no failure of ours explains.
constexpr Millis kAbortedDelay{250};

bool SameAggregate(const OutboxRow& a, const OutboxRow& b) {
  return a.aggregate_type == b.aggregate_type && a.tenant_id == b.tenant_id &&
         a.aggregate_id == b.aggregate_id;
}

// Pub/Sub refuses a request for one row of it. A dispatcher that gives a code means this very row.
bool MayBeTheRows(const DispatchResult& result) {
  const Fault fault = FaultOf(result.status);
  return (fault == Fault::kRefused || fault == Fault::kRow) &&
         (result.code.empty() || result.doubtful);
}

bool Passed(const DispatchResult& result) {
  return result.status.ok() || FaultOf(result.status) == Fault::kKnown;
}

std::string CodeOf(const DispatchResult& result) {
  return result.code.empty() ? std::string(ErrorCode(result.status)) : result.code;
}

}  // namespace

void AnswerHandler::Handle(LeasedRows::Request request, std::vector<DispatchResult> results) {
  // A dispatcher that answers for fewer rows than it got is at fault; its rows are not published.
  results.resize(request.entries.size(),
                 {absl::InternalError("the dispatcher gave no answer for the row"), "", ""});
  const auto refused = static_cast<int>(std::ranges::count_if(results, MayBeTheRows));
  // First of all: it says who of the others is at fault.
  for (size_t i = 0; i < results.size(); ++i) {
    if (Passed(results[i])) doubts_.Passed(*request.entries[i].row, request.sent_at);
  }
  // Routes that have a row which failed: known to whatever becomes of it.
  for (size_t i = 0; i < results.size(); ++i) {
    if (Passed(results[i]) || results[i].taken_by.empty()) continue;
    auto row = std::make_shared<OutboxRow>(*request.entries[i].row);
    row->taken_by = results[i].taken_by;
    request.entries[i].row = std::move(row);
  }
  // Key by key: rows of a key stand side by side.
  size_t first = 0;
  while (first < request.entries.size()) {
    size_t last = first + 1;
    const std::string& key = request.entries[first].row->aggregate_id;
    while (last < request.entries.size() && request.entries[last].row->aggregate_id == key) ++last;
    HandleKey(request, first, last, results, refused);
    first = last;
  }
}

void AnswerHandler::HandleKey(const LeasedRows::Request& request, size_t first, size_t last,
                              const std::vector<DispatchResult>& results, int refused) {
  const SteadyTime now = parts_.clock.Steady();
  const auto took = std::chrono::duration_cast<Millis>(now - request.sent_at);
  const std::string key = request.entries[first].row->aggregate_id;
  std::optional<size_t> failed;
  std::vector<KeyQueues::Entry> behind;  // not delivered, after the failed one
  for (size_t i = first; i < last; ++i) {
    const KeyQueues::Entry& entry = request.entries[i];
    if (Passed(results[i])) {
      parts_.pauses.Reached(entry.row->topic, request.sent_at);
      parts_.events.OnRow({.kind = results[i].status.ok() ? Kind::kPublished : Kind::kKnown,
                           .row = *entry.row,
                           .took = took,
                           .message_id = results[i].message_id});
      parts_.lately.Note(*entry.row, now);
      parts_.marks.Published(entry.row, results[i].message_id, now);
    } else if (!failed.has_value()) {
      failed = i;
    } else {
      behind.push_back(entry);
    }
  }
  if (!failed.has_value()) {
    parts_.leased.queues().Succeeded(key);
    return;
  }
  const DispatchResult& result = results[*failed];
  const KeyQueues::Entry& entry = request.entries[*failed];
  if (MayBeTheRows(result) && refused > 1) {
    // One of them is at fault: halves of halves find it.
    behind.insert(behind.begin(), entry);
    for (KeyQueues::Entry& again : behind) {
      doubts_.Suspect(*again.row, now);
      again.request_limit = std::max(1, refused / 2);
    }
    parts_.leased.queues().SendAgain(key, std::move(behind));
    return;
  }
  for (size_t i = *failed; i < last; ++i) {
    const Fault fault = FaultOf(results[i].status);
    const bool sent =
        !results[i].status.ok() && fault != Fault::kBehind && fault != Fault::kCancelled;
    if (sent) parts_.events.OnRow({Kind::kFailed, *request.entries[i].row, took});
  }
  for (KeyQueues::Entry& waiting : parts_.leased.queues().Failed(key))
    behind.push_back(std::move(waiting));
  HandleFailure(entry, result, std::move(behind));
}

void AnswerHandler::HandleFailure(const KeyQueues::Entry& entry, const DispatchResult& result,
                                  std::vector<KeyQueues::Entry> behind) {
  const Fault fault = FaultOf(result.status);
  const bool refused = fault == Fault::kRefused;
  if (refused && !MayBeTheRows(result)) {
    return RetryOrBury(entry, result, /*permanent=*/true, std::move(behind));
  }
  if (refused || fault == Fault::kRow) {
    const auto [at_fault, times] = doubts_.Failed(*entry.row, parts_.clock.Steady());
    if (!at_fault) return Doubt(entry, times, result, std::move(behind));
    // For good, but not by one answer: it may have met two faults of everybody.
    const bool permanent = refused && entry.row->attempts > 0;
    return RetryOrBury(entry, result, permanent, std::move(behind));
  }
  behind.insert(behind.begin(), entry);
  if (fault == Fault::kOutage) {
    const bool paused = PauseTopic(*entry.row, result);
    const Millis wait = paused ? Millis(0) : parts_.options.retry.cap;
    if (!paused) TellUnblamed(*entry.row, wait, result);
    GiveBack(std::move(behind), wait, &result);
  } else {
    GiveBack(std::move(behind), fault == Fault::kCancelled ? Millis(0) : kAbortedDelay);
  }
}

// Nothing is spent. It waits, so that others of its topic can show whether it is alone.
void AnswerHandler::Doubt(const KeyQueues::Entry& entry, int times, const DispatchResult& result,
                          std::vector<KeyQueues::Entry> behind) {
  const OutboxRow& row = *entry.row;
  const Millis delay = parts_.options.retry.Delay(row.attempts + times, parts_.random());
  GiveBack({entry}, delay, &result);
  GiveBack(std::move(behind));
  if (doubts_.Widespread(row.topic) && PauseTopic(row, result)) return;
  TellUnblamed(row, delay, result);
}

void AnswerHandler::TellUnblamed(const OutboxRow& row, Millis wait, const DispatchResult& result) {
  const std::string code = CodeOf(result);
  const std::string error =
      ErrorSummary(result.status, row.payload, parts_.options.last_error_max_bytes);
  parts_.events.OnRow(
      {.kind = Kind::kUnblamed, .row = row, .wait = wait, .code = code, .error = error});
}

bool AnswerHandler::PauseTopic(const OutboxRow& row, const DispatchResult& result) {
  const SteadyTime now = parts_.clock.Steady();
  if (!parts_.pauses.HasRoomFor(row.topic, now)) return false;
  const auto pause = parts_.pauses.Pause(row.topic, now, result.retry_after);
  if (!pause.has_value()) return true;
  const std::string error =
      ErrorSummary(result.status, row.payload, parts_.options.last_error_max_bytes);
  outage_ = absl::Status(result.status.code(),
                         fmt::format("topic {} is out of reach: {}", row.topic, error));
  parts_.events.OnRow(
      {.kind = Kind::kOutage, .row = row, .wait = *pause, .code = CodeOf(result), .error = error});
  GiveBack(parts_.leased.queues().TakeWaiting(
      [&](const KeyQueues::Entry& entry) { return entry.row->topic == row.topic; }));
  return true;
}

void AnswerHandler::RetryOrBury(const KeyQueues::Entry& entry, const DispatchResult& result,
                                bool permanent, std::vector<KeyQueues::Entry> behind) {
  const OutboxRow& row = *entry.row;
  const int attempts = row.attempts + 1;
  RowFailure failure{.row = entry.row, .spent_attempts = 1};
  failure.error = ErrorSummary(result.status, row.payload, parts_.options.last_error_max_bytes);
  failure.code = CodeOf(result);
  failure.dead = permanent || parts_.options.retry.Exhausted(attempts);
  const bool skips = failure.dead && parts_.options.on_dead == OnDead::kSkip;
  failure.frees_followers = skips;
  if (failure.dead) doubts_.Forget(row);
  if (!failure.dead) failure.delay = parts_.options.retry.Delay(attempts, parts_.random());
  parts_.events.OnRow({.kind = failure.dead ? Kind::kDead : Kind::kRetry,
                       .row = row,
                       .wait = *failure.delay,
                       .code = failure.code,
                       .error = failure.error});
  parts_.marks.Failed(std::move(failure));
  for (KeyQueues::Entry& follower : behind) {
    // Behind a row that waits or is dead: held. Others of the key only lost their turn.
    const bool held = !skips && SameAggregate(row, *follower.row);
    parts_.marks.Failed(
        {.row = std::move(follower.row), .delay = held ? std::nullopt : std::optional(Millis(0))});
  }
}

void AnswerHandler::GiveBack(std::vector<KeyQueues::Entry> entries, Millis delay,
                             const DispatchResult* why) {
  for (KeyQueues::Entry& entry : entries) {
    RowFailure failure{.row = std::move(entry.row), .delay = delay};
    if (why != nullptr) {
      failure.error =
          ErrorSummary(why->status, failure.row->payload, parts_.options.last_error_max_bytes);
      failure.code = CodeOf(*why);
    }
    parts_.marks.Failed(std::move(failure));
  }
}

}  // namespace lockstep::publisher
