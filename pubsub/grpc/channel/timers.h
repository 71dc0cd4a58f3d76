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

class Timer;

// Runs functions later, on one thread of its own: backoffs, lease renewals, and results that must
// not be reported on the caller's thread. Functions may start RPCs, they must not wait. Safe from
// any thread; the destructor drops what has not run.
class Timers {
 public:
  Timers();
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  void Now(std::function<void()> run) { Add(Millis(0), nullptr, std::move(run)); }

 private:
  friend class Timer;
  using Place = std::pair<SteadyTime, uint64_t>;  // the time, and a number of its own
  struct Entry {
    Timer* timer;  // null = nobody will ask
    std::function<void()> run;
  };

  void Add(Millis delay, Timer* timer, std::function<void()> run);
  void Cancel(Timer& timer);
  Entry TakeOut(Timer& timer);
  void Loop();

  std::mutex mu_;
  std::condition_variable changed_;
  std::map<Place, Entry> due_;
  uint64_t last_ = 0;
  const Timer* running_ = nullptr;
  bool stopping_ = false;

  std::thread thread_;
};

// One function at a time that is to run on the thread of the timers. Safe from any thread.
class Timer {
 public:
  explicit Timer(Timers& timers) : timers_(timers) {}
  ~Timer() { Cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Takes the place of the function that has been set before, unless that runs already.
  void Set(Millis delay, std::function<void()> run) { timers_.Add(delay, this, std::move(run)); }

  // Afterwards no function that was set is running (unless this is its own thread), nor will it.
  void Cancel() { timers_.Cancel(*this); }

 private:
  friend class Timers;

  Timers& timers_;
  Timers::Place place_;  // under the lock of the timers; a number of 0 = not set
};

}  // namespace lockstep::pubsub::grpc_client
