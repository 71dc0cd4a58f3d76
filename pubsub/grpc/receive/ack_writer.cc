#include "pubsub/grpc/receive/ack_writer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "platform/status.h"
#include "pubsub/grpc/channel/status.h"

namespace lockstep::pubsub::grpc_client {
namespace {

constexpr Millis kReleaseRpc{5'000};
constexpr RetryPolicy kRetry = WithoutEnd(Millis(50), Millis(1'000));

absl::Status Cancelled() { return absl::CancelledError("the receiver was stopped"); }

absl::Status Lapsed(std::string_view why) {
  return FailedPrecondition("the lease had lapsed: {}", why);
}

// What the answer to a request says about one of its ids. Nothing = it is to be sent again.
std::optional<absl::Status> Judge(const std::string& id, const AckAnswer& answer) {
  if (answer.Refused(id)) return Lapsed(answer.failures.at(id));
  if (answer.failures.contains(id)) return std::nullopt;
  if (answer.status.ok() || !answer.failures.empty()) return absl::OkStatus();
  if (MayPass(answer.status.code())) return std::nullopt;
  const bool invalid = answer.status.code() == absl::StatusCode::kInvalidArgument;
  return invalid ? Lapsed(MessageOf(answer.status)) : answer.status;
}

}  // namespace

AckWriter::AckWriter(Kind kind, AckRpc& rpc, Millis timeout, Timers& timers, HaveResult have_result,
                     Late late)
    : kind_(kind),
      rpc_(rpc),
      timeout_(timeout),
      have_result_(std::move(have_result)),
      late_(std::move(late)),
      retry_timer_(timers),
      deferred_timer_(timers) {}

void AckWriter::Add(std::vector<AckToken> tokens, Receiver::Done done) {
  const auto call = std::make_shared<Call>(tokens.size(), std::move(done));
  const SteadyTime deadline = std::chrono::steady_clock::now() + timeout_;
  {
    std::scoped_lock lock(mu_);
    if (tokens.empty() || closed_) {
      std::fill(call->results.begin(), call->results.end(), Cancelled());
      // Not on the caller's thread: it may hold a lock that its callback takes.
      deferred_.push_back(call);
      return deferred_timer_.Set(Millis(0), [this] { ReportDeferred(); });
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      queue_.push_back({std::move(tokens[i]).value(), call, i, deadline, 0});
    }
    open_ += tokens.size();
  }
  SendNext();
}

void AckWriter::Finish(Item& item, absl::Status status, Finished& finished) {
  if (have_result_) finished.ids.push_back(std::move(item.id));
  if (--open_ == 0) idle_.notify_all();
  if (item.call->Finish(item.index, std::move(status))) finished.calls.push_back(item.call);
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
  Millis timeout = kind_ == Kind::kAck ? timeout_ : std::min(timeout_, kReleaseRpc);
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
    rpc_.Send(std::move(ids), kind_ == Kind::kAck ? std::nullopt : std::optional(0), timeout,
              [this](AckAnswer answer) { OnAnswer(std::move(answer)); });
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
      Conclude(std::move(items), answer, finished);
    }
  }
  Report(std::move(finished));
  SendNext();
}

// Reports what has a result, and rests what is to be sent again, ahead of what came after it.
void AckWriter::Conclude(std::vector<Item> items, const AckAnswer& answer, Finished& finished) {
  const bool timer_is_set = !resting_.empty();
  int attempts = 0;
  for (Item& item : items) {
    std::optional<absl::Status> result = Judge(item.id, answer);
    if (!result && closed_) result = Cancelled();
    if (result) {
      Finish(item, *std::move(result), finished);
    } else {
      attempts = std::max(attempts, ++item.attempts);
      resting_.push_back(std::move(item));
    }
  }
  if (attempts == 0 || timer_is_set) return;
  retry_timer_.Set(kRetry.Delay(attempts, random_()), [this] { OnRetryTimer(); });
}

void AckWriter::OnRetryTimer() {
  {
    std::scoped_lock lock(mu_);
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
  for (const CallPtr& call : finished.calls) call->Report("an acknowledgement callback");
}

void AckWriter::ReportDeferred() {
  Finished finished;
  {
    std::scoped_lock lock(mu_);
    finished.calls.swap(deferred_);
  }
  Report(std::move(finished));
}

void AckWriter::Flush(Millis at_most) {
  std::unique_lock lock(mu_);
  idle_.wait_for(lock, at_most, [this] { return open_ == 0; });
}

void AckWriter::Close() {
  {
    std::scoped_lock lock(mu_);
    closed_ = true;
  }
  deferred_timer_.Cancel();  // before its calls are taken: one that comes later sets it anew
  retry_timer_.Cancel();
  Finished finished;
  {
    std::scoped_lock lock(mu_);
    finished.calls.swap(deferred_);
    for (std::deque<Item>* items : {&resting_, &queue_}) {
      for (Item& item : *items) Finish(item, Cancelled(), finished);
      items->clear();
    }
  }
  Report(std::move(finished));
}

}  // namespace lockstep::pubsub::grpc_client
