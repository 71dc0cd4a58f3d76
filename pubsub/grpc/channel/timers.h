#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "platform/clock.h"

namespace lockstep::pubsub::grpc_client {

// Runs functions later, on one thread of its own: backoffs, lease renewals, and results that must
// not be reported on the caller's thread. Functions may start RPCs, they must not wait. Safe from
// any thread; the destructor drops what has not run.
class Timers {
 public:
  using Id = uint64_t;

  Timers();
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  Id After(Millis delay, std::function<void()> run);
  void Now(std::function<void()> run) { After(Millis(0), std::move(run)); }

  // Afterwards the function is neither running (unless this is its own thread) nor will it run. 0
  // is no timer. A function that forgets its own id must leave it where its owner's end finds it.
  void Cancel(Id id);

 private:
  void Loop();

  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::pair<SteadyTime, Id>, std::function<void()>> due_;
  std::map<Id, SteadyTime> times_;
  Id next_ = 1;
  Id running_ = 0;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace lockstep::pubsub::grpc_client
