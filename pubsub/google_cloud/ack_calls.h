#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "google/cloud/future.h"
#include "google/cloud/status.h"
#include "platform/clock.h"
#include "pubsub/google_cloud/worker.h"
#include "pubsub/receiver.h"

namespace lockstep::pubsub::google_cloud {

// Gathers the results of the acks (or releases) of one call of the user's, which the library sends
// and answers one by one, and gives up on those that take too long. Open, Wait from any thread; the
// rest belongs to the worker.
class AckCalls {
 public:
  AckCalls(Millis timeout, Worker& worker);

  struct Call {
    std::vector<absl::Status> results;
    std::vector<bool> finished;
    std::vector<google::cloud::future<void>> pending;  // by index; may be invalid
    size_t open = 0;
    SteadyTime deadline;
    Receiver::Done done;
  };

  // A call is counted from here on, before its work reaches the worker.
  std::shared_ptr<Call> Open(size_t count, Receiver::Done done);

  void Finish(const std::shared_ptr<Call>& call, size_t index, absl::Status status);
  void Follow(const std::shared_ptr<Call>& call, size_t index,
              google::cloud::future<google::cloud::Status> answer);
  // To be called once all indices are followed or finished.
  void Conclude(const std::shared_ptr<Call>& call);

  void GiveUpOverdue(SteadyTime now);

  // Until no call is open, at most so long.
  void Wait(Millis at_most);

 private:
  void Close(Call& call);

  const Millis timeout_;
  Worker& worker_;
  std::deque<std::shared_ptr<Call>> by_deadline_;  // the worker's

  std::mutex mu_;
  std::condition_variable idle_;
  int open_ = 0;
};

}  // namespace lockstep::pubsub::google_cloud
