#pragma once

#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "platform/clock.h"

namespace lockstep {

// Turns signals into calls. SIGTERM and SIGINT ask to stop (a second one ends the process at once,
// with status 130); SIGHUP asks to reload; SIGUSR1 switches debug logging on and off. Between
// signals its thread lets the log tell which lines were repeated, and so does its end.
//
// The process ends with kGaveUp when it is still there so long after it was asked to stop: whatever
// hangs, the start included, it obeys.
//
// REQUIRES: made in main before any thread is started (threads inherit the blocked signals).
class Signals {
 public:
  static constexpr int kGaveUp = 3;

  explicit Signals(Millis stop_within = Millis(0));  // 0 = as long as it takes
  ~Signals();

  // Called on the signal thread. Setting another waits for a call that is under way.
  void OnReload(std::function<void()> reload);

  std::stop_token stop_token() const { return stop_.get_token(); }
  void WaitForStop();
  void RequestStop() { stop_.request_stop(); }  // as if SIGTERM had come

 private:
  void Run();

  const Millis stop_within_;
  std::stop_source stop_;
  std::mutex reload_mu_;
  std::function<void()> reload_;
  std::jthread deadline_;
  std::thread thread_;
};

// Ends the process at once when the time is over and `done` was not requested.
void EndUnlessDone(const std::stop_token& done, Millis time, int code);

}  // namespace lockstep
