#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "platform/daemon/daemon.h"
#include "platform/daemon/http_server.h"
#include "platform/metrics.h"
#include "sagas/orchestrator/orchestrator.h"
#include "web/document.h"
#include "web/history.h"
#include "web/status_page.h"

namespace lockstep::sagas {

// The orchestrator's part of the status page (how many sagas there are, and those that wait for a
// person), and /api/sagas: without `id` the youngest sagas
// (?definition=, ?state=, ?dead=true, ?after=<id>, ?limit=), with one that saga, its steps with
// their times and its audit. Never an input or a result.
class StatusReporter {
 public:
  // REQUIRES: as of web::StatusPage; `orchestrator` outlives `http`.
  StatusReporter(SagaOrchestrator& orchestrator, RunningConfig config, MetricsRegistry& metrics,
                 HttpServer& http);

  absl::Status Start() { return page_.Start(); }
  void SetConfig(const RunningConfig& config) { daemon_.SetConfig(config); }

 private:
  nlohmann::json Compose();
  nlohmann::json Sagas(WallTime now);
  void AnswerSagas(const HttpRequest& request, const HttpReply& reply);

  SagaOrchestrator& orchestrator_;
  web::Daemon daemon_;
  web::DatabaseReading database_;
  web::History history_;  // of the page's thread
  web::StatusPage page_;  // last: its thread uses the rest
};

}  // namespace lockstep::sagas
