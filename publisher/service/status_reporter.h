#pragma once

#include <nlohmann/json_fwd.hpp>

#include "platform/daemon/daemon.h"
#include "platform/daemon/http_server.h"
#include "platform/daemon/service.h"
#include "platform/metrics.h"
#include "web/document.h"
#include "web/history.h"
#include "web/status_page.h"

namespace lockstep::publisher {

class PublisherService;

// Puts together what the status page of a publisher and its JSON say, every second, out of what the
// service knows of itself and has read from the database (OutboxWatch). Never waits for either.
class StatusReporter final : public Service {
 public:
  // `config`: as it was read, secrets masked. `service` outlives this object. REQUIRES: `http` is
  // not started yet, and is stopped before this object is destroyed.
  StatusReporter(PublisherService& service, RunningConfig config, MetricsRegistry& metrics,
                 HttpServer& http);
  ~StatusReporter() override { Stop(); }

  absl::Status Start() override { return page_.Start(); }
  void Stop() override { page_.Stop(); }

  // The configuration was read again. From any thread.
  void SetConfig(const RunningConfig& config) { daemon_.SetConfig(config); }

 private:
  nlohmann::json Compose();

  PublisherService& service_;
  web::Daemon daemon_;
  web::History history_;
  web::StatusPage page_;  // last: its thread uses the rest
};

}  // namespace lockstep::publisher
