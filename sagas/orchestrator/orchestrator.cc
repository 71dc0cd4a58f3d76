#include "sagas/orchestrator/orchestrator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "platform/config/database_address.h"
#include "platform/daemon/service_thread.h"
#include "platform/duration.h"
#include "platform/host_name.h"
#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "sagas/engine/engine.h"
#include "sagas/orchestrator/observer.h"
#include "sagas/orchestrator/saga_watch.h"

namespace lockstep::sagas {
namespace {

// A dispatcher whose loop stands still for so long hangs.
constexpr Millis kStandstill{30'000};

OrchestratorOptions Named(OrchestratorOptions options) {
  if (options.instance.empty()) options.instance = fmt::format("{}:{}", HostName(), ::getpid());
  options.engine.owner = options.instance;
  options.engine.poll_floor = std::min(options.engine.poll_floor, options.engine.poll_interval);
  return options;
}

}  // namespace

struct SagaOrchestrator::Parts {
  Parts(OrchestratorOptions given, MetricsRegistry& metrics)
      : options(Named(std::move(given))),
        observer(metrics),
        engine(options.engine, observer),
        watch(options, metrics) {}

  const OrchestratorOptions options;
  Observer observer;
  Engine engine;
  SagaWatch watch;
};

SagaOrchestrator::SagaOrchestrator(OrchestratorOptions options, MetricsRegistry& metrics)
    : parts_(std::make_unique<Parts>(std::move(options), metrics)) {}

SagaOrchestrator::~SagaOrchestrator() { Stop(); }

void SagaOrchestrator::AddFunction(const std::string& name, StepFunction function) {
  parts_->engine.AddFunction(name, std::move(function));
}

absl::Status SagaOrchestrator::Check() {
  RETURN_IF_ERROR(parts_->options.Validate());
  return parts_->engine.Check();
}

absl::Status SagaOrchestrator::Start() {
  MaskKeys(parts_->options.mask_keys);
  if (const auto fault = UncheckedServer(parts_->options.engine.database); !fault.empty()) {
    log::Warning(fault);
  }
  if (const absl::Status checked = Check(); !checked.ok()) {
    if (postgres::SqlState(checked).empty() ||
        postgres::Classify(checked) != postgres::ErrorClass::kTransient) {
      return checked;
    }
    log::Warning("the database can't be reached yet; it is waited for", {{"error", checked}});
  }
  RETURN_IF_ERROR(parts_->engine.Start());
  return parts_->watch.Start();
}

void SagaOrchestrator::Stop() { StopTogether({&parts_->watch, &parts_->engine}); }

void SagaOrchestrator::Reload(const OrchestratorOptions& fresh) {
  parts_->engine.SetLimits(fresh.engine.limits);
  parts_->watch.Reconfigure(fresh.retention);
}

std::vector<std::string> SagaOrchestrator::NotReady() const {
  const SteadyTime now = Clock::System().Steady();
  std::vector<std::string> reasons = parts_->observer.Blocked(now);
  const Millis grace = parts_->options.ready_grace;
  if (const auto fault = parts_->observer.database(); fault && now - fault->since > grace) {
    reasons.push_back(fmt::format("database: {}", fault->words));
  }
  const auto still = now - parts_->engine.last_turn();
  if (still > std::max(kStandstill, grace)) {
    reasons.push_back(fmt::format("its loop has stood still for {}",
                                  FormatDuration(std::chrono::duration_cast<Millis>(
                                      std::chrono::floor<std::chrono::seconds>(still)))));
  }
  return reasons;
}

bool SagaOrchestrator::Alive() const {
  return Clock::System().Steady() - parts_->engine.last_turn() <=
         std::max(kStandstill, parts_->options.ready_grace);
}

int SagaOrchestrator::in_hand() const { return parts_->engine.in_hand(); }
SagaWatch& SagaOrchestrator::watch() { return parts_->watch; }
const Observer& SagaOrchestrator::observer() const { return parts_->observer; }
const OrchestratorOptions& SagaOrchestrator::options() const { return parts_->options; }

}  // namespace lockstep::sagas
