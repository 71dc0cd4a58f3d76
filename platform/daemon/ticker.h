#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "platform/clock.h"
#include "platform/daemon/service.h"

namespace lockstep {

// Does something every so often on a thread of its own. A round that throws is told and the next
// one tried. Stop waits for the round that is under way.
class Ticker final : public Service {
 public:
  Ticker(Millis every, std::function<void()> round);
  ~Ticker() override;

  absl::Status Start() override;
  void Stop() override;

 private:
  void Run();
  bool Wait();  // an interval; true = stop

  const Millis every_;
  const std::function<void()> round_;
  std::mutex life_mu_;  // Start against Stop; held while joining
  bool started_ = false;
  std::thread thread_;

  std::mutex mu_;
  bool stopping_ = false;
  std::condition_variable stopped_;
};

}  // namespace lockstep
