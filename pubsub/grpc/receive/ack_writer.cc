#include "pubsub/grpc/receive/ack_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/grpc/channel/status.h"

namespace lockstep::pubsub::grpc_client {
namespace {

absl::Status Cancelled() { return absl::CancelledError("the receiver was stopped"); }

absl::Status Lapsed(std::string_view why) {
  return FailedPrecondition("the lease had lapsed: {}", why);
}

}  // namespace

struct AckWriter::Call {
  std::vector<absl::Status> results;
  size_t open = 0;
  Receiver::Done done;
};

AckWriter::AckWriter(Send send, Millis timeout, Timers& timers, HaveResult have_result, Late late)
    : send_(std::move(send)),
      timeout_(timeout),
      have_result_(std::move(have_result)),
      late_(std::move(late)),
      retry_{.max_attempts = 0,
             .base = Millis(50),
             .factor = 2,
             .cap = Millis(1'000),
             .jitter = RetryPolicy::Jitter::kProportional,
             .jitter_amount = 0.3},
      timers_(timers) {}

AckWriter::~AckWriter() { Close(); }

void AckWriter::Add(std::vector<AckToken> tokens, Receiver::Done done) {
  auto call = std::make_unique<Call>();
  call->results.resize(tokens.size());
  call->open = tokens.size();
  call->done = std::move(done);
  const SteadyTime deadline = std::chrono::steady_clock::now() + timeout_;
  {
    std::scoped_lock lock(mu_);
    if (tokens.empty() || closed_) {
      std::fill(call->results.begin(), call->results.end(), Cancelled());
      // Not on the caller's thread: it may hold a lock that its callback takes.
      deferred_.push_back(std::move(call));
      if (deferred_timer_ == 0) {
        deferred_timer_ = timers_.After(Millis(0), [this] { ReportDeferred(); });
      }
      return;
    }
    Call* raw = call.release();  // owned by its open items from here on
    for (size_t i = 0; i < tokens.size(); ++i) {
      queue_.push_back({std::move(tokens[i]).value(), raw, i, deadline, 0});
    }
    open_ += tokens.size();
  }
  SendNext();
}

void AckWriter::Finish(Item& item, absl::Status status, Finished& finished) {
  Call* call = item.call;
  call->results[item.index] = std::move(status);
  if (have_result_) finished.ids.push_back(std::move(item.id));
  if (--open_ == 0) idle_.notify_all();
  if (--call->open == 0) finished.calls.emplace_back(call);
}

// Takes the ids of one request off the queue; their items are then in flight.
std::vector<std::string> AckWriter::TakeRequest(SteadyTime now, Finished& finished) {
  std::vector<std::string> ids;
  AckRequestSize size;
  while (!queue_.empty()) {
    Item& item = queue_.front();
    if (suspects_ > 0 && in_flight_.size() >= std::min(split_, suspects_)) break;
    if (item.deadline <= now) {
      if (suspects_ > 0) --suspects_;
      if (late_) finished.late.emplace_back(item.id);
      Finish(item, absl::DeadlineExceededError("the server did not take it in time"), finished);
      queue_.pop_front();
      continue;
    }
    if (!size.Add(item.id)) break;
    ids.push_back(std::move(item.id));
    in_flight_.push_back(std::move(item));
    queue_.pop_front();
  }
  return ids;
}

void AckWriter::SendNext() {
  std::vector<std::string> ids;
  Finished finished;
  Millis timeout = timeout_;
  {
    std::scoped_lock lock(mu_);
    if (sending_ || closed_) return;
    const SteadyTime now = std::chrono::steady_clock::now();
    ids = TakeRequest(now, finished);
    sending_ = !ids.empty();
    // Not past the first one's time: an ack must not be taken later than its caller was told.
    for (const Item& item : in_flight_) {
      timeout = std::min(timeout, std::chrono::ceil<Millis>(item.deadline - now));
    }
  }
  if (!ids.empty()) {
    send_(std::move(ids), timeout, [this](AckAnswer answer) { OnAnswer(std::move(answer)); });
  }
  Report(std::move(finished));
}

void AckWriter::OnAnswer(AckAnswer answer) {
  Finished finished;
  {
    std::scoped_lock lock(mu_);
    std::vector<Item> items = std::move(in_flight_);
    in_flight_.clear();
    sending_ = false;
    for (size_t i = 0; i < items.size(); ++i) items[i].id = std::move(answer.ids[i]);
    const bool unnamed = answer.status.code() == absl::StatusCode::kInvalidArgument &&
                         answer.failures.empty() && items.size() > 1;
    if (unnamed && !closed_) {
      suspects_ = std::max(suspects_, items.size());
      split_ = items.size() / 2;
      std::move(items.rbegin(), items.rend(), std::front_inserter(queue_));
    } else {
      if (suspects_ > 0) {
        suspects_ -= std::min(suspects_, items.size());
        split_ = answer.status.ok() ? split_ * 2 : std::max<size_t>(suspects_, 1);
      }
      std::deque<Item> again;
      for (Item& item : items) Judge(std::move(item), answer, again, finished);
      Again(std::move(again), finished);
    }
  }
  Report(std::move(finished));
  SendNext();
}

void AckWriter::Judge(Item item, const AckAnswer& answer, std::deque<Item>& again,
                      Finished& finished) {
  if (answer.status.ok()) return Finish(item, absl::OkStatus(), finished);
  if (!answer.failures.empty()) {
    const auto failure = answer.failures.find(item.id);
    if (failure == answer.failures.end()) return Finish(item, absl::OkStatus(), finished);
    if (failure->second.rfind("TRANSIENT", 0) == 0) {
      again.push_back(std::move(item));
      return;
    }
    return Finish(item, Lapsed(failure->second), finished);
  }
  if (MayPass(answer.status.code())) {
    again.push_back(std::move(item));
    return;
  }
  const bool invalid = answer.status.code() == absl::StatusCode::kInvalidArgument;
  Finish(item, invalid ? Lapsed(MessageOf(answer.status)) : answer.status, finished);
}

// Rests what is to be sent again, ahead of what came after it.
void AckWriter::Again(std::deque<Item> items, Finished& finished) {
  if (items.empty()) return;
  if (closed_) {
    for (Item& item : items) Finish(item, Cancelled(), finished);
    return;
  }
  int attempts = 0;
  for (Item& item : items) attempts = std::max(attempts, ++item.attempts);
  std::move(items.begin(), items.end(), std::back_inserter(resting_));
  if (retry_timer_ != 0) return;
  retry_timer_ = timers_.After(retry_.Delay(attempts, random_()), [this] { OnRetryTimer(); });
}

void AckWriter::OnRetryTimer() {
  {
    std::scoped_lock lock(mu_);
    fired_ = std::exchange(retry_timer_, 0);
    // Suspects stay first: they are counted from the front.
    const auto place =
        queue_.begin() + static_cast<std::ptrdiff_t>(std::min(suspects_, queue_.size()));
    queue_.insert(place, std::make_move_iterator(resting_.begin()),
                  std::make_move_iterator(resting_.end()));
    resting_.clear();
  }
  SendNext();
}

void AckWriter::Report(Finished finished) {
  if (!finished.ids.empty()) have_result_(finished.ids);
  if (!finished.late.empty()) late_(std::move(finished.late));
  for (const auto& call : finished.calls) {
    try {
      call->done(std::move(call->results));
    } catch (const std::exception& error) {
      log::Error("an acknowledgement callback threw", {{"error", error.what()}});
    } catch (...) {
      log::Error("an acknowledgement callback threw");
    }
  }
}

void AckWriter::ReportDeferred() {
  Finished finished;
  {
    std::scoped_lock lock(mu_);
    finished.calls.swap(deferred_);
    fired_ = std::exchange(deferred_timer_, 0);
  }
  Report(std::move(finished));
}

void AckWriter::Flush(Millis at_most) {
  std::unique_lock lock(mu_);
  idle_.wait_for(lock, at_most, [this] { return open_ == 0; });
}

void AckWriter::Close() {
  Finished finished;
  std::vector<Timers::Id> timers;
  {
    std::scoped_lock lock(mu_);
    closed_ = true;
    finished.calls.swap(deferred_);
    timers = {deferred_timer_, retry_timer_, fired_};
    for (std::deque<Item>* items : {&resting_, &queue_}) {
      for (Item& item : *items) Finish(item, Cancelled(), finished);
      items->clear();
    }
  }
  Report(std::move(finished));
  for (const Timers::Id id : timers) timers_.Cancel(id);
}

}  // namespace lockstep::pubsub::grpc_client
