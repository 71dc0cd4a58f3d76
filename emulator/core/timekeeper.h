#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"

namespace lockstep::emulator {

// Runs things when their time has come, on a thread of its own, without a lock held. With a test's
// clock it looks every few milliseconds, since nothing tells it that the clock was moved.
class Timekeeper : public Service {
 public:
  explicit Timekeeper(const Clock& clock) : clock_(clock) {}
  ~Timekeeper() override { Stop(); }

  absl::Status Start() override {
    return thread_.Start([this] { Loop(); });
  }
  // What is scheduled and not due is forgotten.
  void Stop() override;

  void At(SteadyTime time, std::function<void()> run);
  const Clock& clock() const { return clock_; }

 private:
  void Loop();

  const Clock& clock_;
  std::mutex mu_;
  std::condition_variable_any changed_;
  std::multimap<SteadyTime, std::function<void()>> scheduled_;
  ServiceThread thread_;  // last: it uses the rest
};

}  // namespace lockstep::emulator
