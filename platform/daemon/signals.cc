#include "platform/daemon/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "platform/daemon/service_thread.h"
#include "platform/log/log.h"

namespace lockstep {
namespace {

constexpr time_t kTellRepeatsEvery = 5;  // seconds

sigset_t Handled() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  return set;
}

void ToggleDebug() {
  const bool debug = log::CurrentLevel() == log::Level::kDebug;
  log::SetLevel(debug ? log::Level::kInfo : log::Level::kDebug);
  log::Info("log level changed by signal", {{"log_level", debug ? "info" : "debug"}});
}

}  // namespace

Signals::Signals(Millis stop_within) : stop_within_(stop_within) {
  signal(SIGPIPE, SIG_IGN);
  const sigset_t set = Handled();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Run(); });
}

Signals::~Signals() {
  pthread_kill(thread_.native_handle(), SIGUSR2);  // our own: end the thread
  thread_.join();
  log::TellRepeats(/*all=*/true);
}

void Signals::OnReload(std::function<void()> reload) {
  const std::scoped_lock lock(reload_mu_);
  reload_ = std::move(reload);
}

void Signals::Run() {
  const sigset_t set = Handled();
  for (;;) {
    const timespec patience{.tv_sec = kTellRepeatsEvery, .tv_nsec = 0};
    const int signal = sigtimedwait(&set, nullptr, &patience);
    if (signal < 0) {  // none came
      log::TellRepeats();
      continue;
    }
    switch (signal) {
      case SIGUSR2:
        return;
      case SIGHUP: {
        const std::scoped_lock lock(reload_mu_);
        if (reload_) reload_();
        break;
      }
      case SIGUSR1:
        ToggleDebug();
        break;
      default:
        if (stop_.stop_requested()) _exit(130);
        log::Info("stopping; a second signal quits at once", {{"signal", signal}});
        if (stop_within_ > Millis(0)) {
          deadline_ = std::jthread(
              [this](const std::stop_token& done) { EndUnlessDone(done, stop_within_, kGaveUp); });
        }
        stop_.request_stop();
    }
  }
}

void EndUnlessDone(const std::stop_token& done, Millis time, int code) {
  if (SleepUnlessStopped(done, time)) return;
  log::Error("not everything could be finished in time; it will come again");
  std::_Exit(code);
}

void Signals::WaitForStop() {
  std::mutex mu;
  std::condition_variable_any stopped;
  std::unique_lock lock(mu);
  stopped.wait(lock, stop_.get_token(), [] { return false; });
}

}  // namespace lockstep
