#include "platform/daemon/service_thread.h"

#include <condition_variable>
#include <exception>

#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep {

bool SleepUnlessStopped(const std::stop_token& stop, Millis time) {
  std::mutex mu;
  std::condition_variable_any wake;
  std::unique_lock lock(mu);
  wake.wait_for(lock, stop, time, [] { return false; });
  return stop.stop_requested();
}

void StopTogether(const std::vector<Service*>& services) {
  std::vector<std::jthread> stopping;
  stopping.reserve(services.size());
  for (Service* service : services) stopping.emplace_back([service] { service->Stop(); });
}

absl::Status ServiceThread::Start(std::function<void()> run) {
  const std::scoped_lock lock(mu_);
  if (started_ || stopping()) return FailedPrecondition("it was started or stopped before");
  started_ = true;
  thread_ = std::thread(std::move(run));
  return absl::OkStatus();
}

void ServiceThread::Stop() {
  RequestStop();
  const std::scoped_lock lock(mu_);
  if (thread_.joinable()) thread_.join();
}

void Ticker::Run() {
  do {
    try {
      round_();
    } catch (const std::exception& e) {
      log::Warning("a round failed; the next one is tried", {{"error", e.what()}});
    }
  } while (!SleepUnlessStopped(thread_.stop_token(), every_));
}

}  // namespace lockstep
