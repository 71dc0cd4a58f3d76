#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/metrics.h"
#include "sagas/engine/events.h"

namespace lockstep::sagas {

// Counts, logs and remembers what an engine tells. Safe from any thread.
class Observer final : public EngineEvents {
 public:
  explicit Observer(MetricsRegistry& metrics);

  void OnClaimed(const StoredSaga& saga, Claimed::News news) override;
  void OnTry(const StoredSaga& saga, const StoredStep& step, const Outcome& outcome,
             double seconds) override;
  void OnState(const StoredSaga& saga, SagaState was) override;
  void OnLost(const std::string& saga) override;
  void OnDatabase(const absl::Status& status) override;

  // Since when the database does not answer as it should, and why; nullopt = it does.
  struct Fault {
    SteadyTime since{};
    std::string words;
  };
  std::optional<Fault> database() const;
  // Of one definition, since this process began: what this process did.
  struct Totals {
    std::string definition;
    int64_t started = 0, completed = 0, failed = 0, compensated = 0, cancelled = 0;
  };
  std::vector<Totals> totals() const;
  // Steps that wait for somebody to mend what they need: a function, a right, an address.
  std::vector<std::string> Blocked(SteadyTime now) const;

 private:
  struct OfDefinition {
    prometheus::Counter* started = nullptr;
    prometheus::Counter* completed = nullptr;
    prometheus::Counter* failed = nullptr;
    prometheus::Counter* compensated = nullptr;
    int64_t cancelled = 0;
    std::map<std::string, prometheus::Histogram*> steps;
  };
  OfDefinition& Of(const std::string& definition);  // under mu_

  MetricsRegistry& metrics_;
  prometheus::Counter& replays_;
  prometheus::Counter& lost_;
  mutable std::mutex mu_;
  std::map<std::string, OfDefinition> definitions_;
  std::optional<Fault> database_;
  struct Block {
    std::string words;
    SteadyTime seen{};
    Millis again{};  // how long until it is tried again
  };
  std::map<std::pair<std::string, std::string>, Block> blocked_;
};

}  // namespace lockstep::sagas
