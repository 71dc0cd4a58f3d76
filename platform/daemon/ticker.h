#pragma once

#include <functional>
#include <utility>

#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"

namespace lockstep {

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
