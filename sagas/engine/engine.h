#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "sagas/engine/call.h"
#include "sagas/engine/events.h"
#include "sagas/engine/options.h"

namespace lockstep::sagas {

// Runs sagas: claims what is due under leases, decides what is next (decide.h), does it and saves
// it. Any number may run beside each other on one database. A dispatcher's thread claims, renews
// and sleeps; workers' threads run steps, each saga on one of them at a time; calls answer from
// threads of their own. Stop lets calls under way come to their end for a while and gives all
// leases back.
class Engine final : public Service {
 public:
  // `events` outlive it.
  Engine(EngineOptions options, EngineEvents& events);
  ~Engine() override;

  // The code of fn:<name>. REQUIRES: before Start.
  void AddFunction(const std::string& name, StepFunction function);

  // Whether the database has sagas of this version and all the rights that it takes; what the
  // options name can be read.
  absl::Status Check();

  absl::Status Start() override;
  void Stop() override;

  void SetLimits(const EngineLimits& limits);

  int in_hand() const;
  // When the dispatcher last looked with success.
  SteadyTime last_turn() const;
  bool crashed() const;  // by a seam

  struct Parts;

 private:
  const EngineOptions options_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::sagas
