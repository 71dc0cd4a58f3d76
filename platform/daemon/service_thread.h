#pragma once

#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"

namespace lockstep {

// Sleeps that end early when `stop` is requested; answers whether it was.
bool SleepUnlessStopped(const std::stop_token& stop, Millis time);

// Stops them side by side: each may take its time, and none takes the others'.
void StopTogether(const std::vector<Service*>& services);

// The one thread of a Service, with the life that platform/daemon/service.h promises: it begins
// once at most and never after a Stop, and everybody who stops it waits for its end. What it runs
// looks at the stop token. Safe from any thread.
class ServiceThread {
 public:
  ~ServiceThread() { Stop(); }

  absl::Status Start(std::function<void()> run);
  void RequestStop() { stop_.request_stop(); }
  void Stop();  // requests it and waits for the end

  std::stop_token stop_token() const { return stop_.get_token(); }
  bool stopping() const { return stop_.stop_requested(); }

 private:
  std::stop_source stop_;
  std::mutex mu_;  // Start against Stop; held while joining
  std::thread thread_;
  bool started_ = false;
};

// Does something every so often on a thread of its own, the first time at once. A round that throws
// is told and the next one tried. Stop waits for the round that is under way.
class Ticker final : public Service {
 public:
  Ticker(Millis every, std::function<void()> round) : every_(every), round_(std::move(round)) {}

  absl::Status Start() override {
    return thread_.Start([this] { Run(); });
  }
  void Stop() override { thread_.Stop(); }

  // For a round that takes long: whether it should end.
  bool stopping() const { return thread_.stopping(); }

 private:
  void Run();

  const Millis every_;
  const std::function<void()> round_;
  ServiceThread thread_;  // last: its end waits for the round
};

}  // namespace lockstep
