#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/daemon/service.h"
#include "platform/metrics.h"
#include "sagas/engine/call.h"
#include "sagas/orchestrator/options.h"

// An orchestrator in a process of one's own. Public: docs/sagas.md.
namespace lockstep::sagas {

class Observer;
class SagaWatch;

// A whole orchestrator: the engine that runs sagas, what counts and cleans them, metrics and logs.
// lockstep-orchestrator is this plus an HTTP endpoint; a C++ service may run it in its own process,
// with functions of its own for fn: steps.
//
//   sagas::SagaOrchestrator orchestrator(options, registry);
//   orchestrator.AddFunction("score", [](const sagas::StepCall& call, const std::stop_token&) {…});
//   orchestrator.Start();
//
// Start answers with a sentence when the database has no sagas or a pooler is in the way; one that
// can't be reached yet is waited for. Stop lets calls under way come to their end for a while and
// gives the rest to others. Safe from any thread.
class SagaOrchestrator : public Service {
 public:
  // `metrics` outlives it.
  SagaOrchestrator(OrchestratorOptions options, MetricsRegistry& metrics);
  ~SagaOrchestrator() override;

  // The code of `fn:<name>`. REQUIRES: before Start.
  void AddFunction(const std::string& name, StepFunction function);

  absl::Status Start() override;
  void Stop() override;

  // The configuration was read again (SIGHUP): limits and retention are followed.
  void Reload(const OrchestratorOptions& fresh);

  // What Start checks, the database's presence included.
  absl::Status Check();

  // One sentence per reason why sagas don't go on; none = ready.
  std::vector<std::string> NotReady() const;
  // Whether its loop makes its turns, whatever becomes of the sagas. REQUIRES: started.
  bool Alive() const;

  int in_hand() const;  // sagas under a lease of this process's
  SagaWatch& watch();
  const Observer& observer() const;
  const OrchestratorOptions& options() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::sagas
