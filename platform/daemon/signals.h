#pragma once

#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace lockstep {

// Turns signals into calls. SIGTERM and SIGINT ask to stop (a second one ends the process at once,
// with status 130); SIGHUP asks to reload; SIGUSR1 switches debug logging on and off. Between
// signals its thread lets the log tell which lines were repeated, and so does its end.
//
// REQUIRES: made in main before any thread is started (threads inherit the blocked signals).
class Signals {
 public:
  Signals();
  ~Signals();

  // Called on the signal thread. Setting another waits for a call that is under way.
  void OnReload(std::function<void()> reload);

  std::stop_token stop_token() const { return stop_.get_token(); }
  void WaitForStop();
  void RequestStop() { stop_.request_stop(); }  // as if SIGTERM had come

 private:
  void Run();

  std::stop_source stop_;
  std::mutex reload_mu_;
  std::function<void()> reload_;
  std::thread thread_;
};

}  // namespace lockstep
