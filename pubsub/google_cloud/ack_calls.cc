#include "pubsub/google_cloud/ack_calls.h"

#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/google_cloud/library.h"

namespace lockstep::pubsub::google_cloud {
namespace {

// What the library answers when the server refuses an ack id for good, or has it no more.
absl::Status Translate(const google::cloud::Status& status) {
  const absl::Status plain = FromCloud(status);
  if (plain.code() == absl::StatusCode::kInvalidArgument ||
      plain.code() == absl::StatusCode::kNotFound) {
    return FailedPrecondition("the lease has lapsed: {}", MessageOf(plain));
  }
  return plain;
}

}  // namespace

AckCalls::AckCalls(Millis timeout, Worker& worker) : timeout_(timeout), worker_(worker) {}

std::shared_ptr<AckCalls::Call> AckCalls::Open(size_t count, Receiver::Done done) {
  auto call = std::make_shared<Call>();  // shared with the library's continuations
  call->results.resize(count);
  call->finished.resize(count);
  call->pending.resize(count);
  call->open = count + 1;  // one for Conclude
  call->done = std::move(done);
  call->deadline = std::chrono::steady_clock::now() + timeout_;
  std::scoped_lock lock(mu_);
  ++open_;
  return call;
}

void AckCalls::Finish(const std::shared_ptr<Call>& call, size_t index, absl::Status status) {
  if (call->finished[index]) return;
  call->finished[index] = true;
  call->results[index] = std::move(status);
  if (--call->open == 0) Close(*call);
}

void AckCalls::Follow(const std::shared_ptr<Call>& call, size_t index,
                      google::cloud::future<google::cloud::Status> answer) {
  auto followed =
      answer.then([this, call, index](google::cloud::future<google::cloud::Status> status) {
        worker_.Post(
            [this, call, index, result = Translate(status.get())] { Finish(call, index, result); });
      });
  if (!call->finished[index]) call->pending[index] = std::move(followed);
}

void AckCalls::Conclude(const std::shared_ptr<Call>& call) {
  if (--call->open == 0) return Close(*call);
  by_deadline_.push_back(call);
}

void AckCalls::GiveUpOverdue(SteadyTime now) {
  while (!by_deadline_.empty()) {
    const std::shared_ptr<Call> call = by_deadline_.front();
    if (call->open > 0 && call->deadline > now) return;
    by_deadline_.pop_front();
    for (size_t i = 0; i < call->results.size(); ++i) {
      if (call->finished[i]) continue;
      // The library would go on for minutes, and a late ack could acknowledge what a Seek brought
      // back.
      auto pending = std::move(call->pending[i]);
      Finish(call, i, absl::DeadlineExceededError("the server did not take it in time"));
      if (pending.valid()) pending.cancel();
    }
  }
}

void AckCalls::Close(Call& call) {
  try {
    call.done(std::move(call.results));
  } catch (const std::exception& error) {
    log::Error("an ack callback threw", {{"error", error.what()}});
  } catch (...) {
    log::Error("an ack callback threw");
  }
  std::scoped_lock lock(mu_);
  if (--open_ == 0) idle_.notify_all();
}

void AckCalls::Wait(Millis at_most) {
  std::unique_lock lock(mu_);
  idle_.wait_for(lock, at_most, [this] { return open_ == 0; });
}

}  // namespace lockstep::pubsub::google_cloud
