#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "google/cloud/future.h"
#include "google/cloud/status.h"
#include "platform/clock.h"
#include "platform/status.h"
#include "pubsub/google_cloud/library.h"
#include "pubsub/google_cloud/worker.h"
#include "pubsub/receiver.h"
#include "pubsub/user_call.h"

namespace lockstep::pubsub::google_cloud {

// Gathers the results of the acks (or releases) of one call of the user's, which the library sends
// and answers one by one, and gives up on those that take too long. Open, Wait from any thread; the
// rest belongs to the worker.
class AckCalls {
 public:
  using Answer = google::cloud::future<google::cloud::Status>;

  struct Call : UserCall<absl::Status> {
    Call(size_t count, Receiver::Done callback, SteadyTime end)
        : UserCall(count, std::move(callback)), deadline(end), finished(count), pending(count) {}

    const SteadyTime deadline;
    std::vector<bool> finished;
    std::vector<google::cloud::future<void>> pending;  // by index; may be invalid
  };
  using CallPtr = std::shared_ptr<Call>;  // shared with the library's continuations

  AckCalls(Millis timeout, Worker& worker) : timeout_(timeout), worker_(worker) {}

  // A call is counted from here on, before its work reaches the worker.
  CallPtr Open(size_t count, Receiver::Done done) {
    auto call =
        std::make_shared<Call>(count, std::move(done), std::chrono::steady_clock::now() + timeout_);
    ++call->open;  // for Conclude
    std::scoped_lock lock(mu_);
    ++open_;
    return call;
  }

  void Finish(const CallPtr& call, size_t index, absl::Status status) {
    if (call->finished[index]) return;
    call->finished[index] = true;
    if (call->Finish(index, std::move(status))) Report(*call);
  }

  void Follow(const CallPtr& call, size_t index, Answer answer) {
    auto followed = answer.then([this, call, index](Answer status) {
      worker_.Post(
          [this, call, index, result = Translate(status.get())] { Finish(call, index, result); });
    });
    if (!call->finished[index]) call->pending[index] = std::move(followed);
  }

  // To be called once all indices are followed or finished.
  void Conclude(const CallPtr& call) {
    if (--call->open == 0) return Report(*call);
    by_deadline_.push_back(call);
  }

  void GiveUpOverdue(SteadyTime now) {
    while (!by_deadline_.empty()) {
      const CallPtr call = by_deadline_.front();
      if (call->open > 0 && call->deadline > now) return;
      by_deadline_.pop_front();
      for (size_t i = 0; i < call->finished.size(); ++i) {
        if (call->finished[i]) continue;
        // The library would go on for minutes, and a late ack could acknowledge what a Seek brought
        // back.
        auto pending = std::move(call->pending[i]);
        Finish(call, i, absl::DeadlineExceededError("the server did not take it in time"));
        if (pending.valid()) pending.cancel();
      }
    }
  }

  // Until no call is open, at most so long.
  void Wait(Millis at_most) {
    std::unique_lock lock(mu_);
    idle_.wait_for(lock, at_most, [this] { return open_ == 0; });
  }

 private:
  // What the library answers when the server refuses an ack id for good, or has it no more.
  static absl::Status Translate(const google::cloud::Status& status) {
    const absl::Status plain = FromCloud(status);
    if (plain.code() == absl::StatusCode::kInvalidArgument ||
        plain.code() == absl::StatusCode::kNotFound) {
      return FailedPrecondition("the lease has lapsed: {}", MessageOf(plain));
    }
    return plain;
  }

  void Report(Call& call) {
    call.Report("an acknowledgement callback");
    std::scoped_lock lock(mu_);
    if (--open_ == 0) idle_.notify_all();
  }

  const Millis timeout_;
  Worker& worker_;
  std::deque<CallPtr> by_deadline_;  // the worker's

  std::mutex mu_;
  std::condition_variable idle_;
  int open_ = 0;
};

}  // namespace lockstep::pubsub::google_cloud
