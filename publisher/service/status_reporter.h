#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "platform/daemon/http_server.h"
#include "platform/daemon/reload.h"
#include "platform/daemon/service.h"
#include "platform/daemon/ticker.h"
#include "platform/metrics.h"
#include "publisher/outbox/outbox_reader.h"
#include "web/document.h"
#include "web/status_page.h"

namespace lockstep::publisher {

class PublisherService;
struct TableStatus;

// Puts together what the status page, its JSON and the gauges of a publisher say: what the relays
// know of themselves, and what a session of its own reads from the database. Two threads: one reads
// the database (every two seconds while somebody looks at the page or the metrics, else once a
// minute) and may hang with it, the other composes the document every second and never waits.
class StatusReporter final : public Service {
 public:
  // `config`: as it was read, secrets masked. `service` outlives this object. REQUIRES: `http` is
  // not started yet, and is stopped before this object is destroyed.
  StatusReporter(const PublisherService& service, RunningConfig config, MetricsRegistry& metrics,
                 HttpServer& http);
  ~StatusReporter() override;

  absl::Status Start() override;
  void Stop() override;

  // The configuration was read again. From any thread.
  void SetConfig(const RunningConfig& config);

 private:
  struct Table;

  void ReadDatabase();
  nlohmann::json Compose();
  nlohmann::json ComposeTable(const TableStatus& status, WallTime now);

  const PublisherService& service_;
  const WallTime started_at_;
  const std::string address_;  // without its password
  web::DatabaseReading reading_state_;
  OutboxReader reader_;                                   // the reading thread
  std::map<std::string, std::unique_ptr<Table>> tables_;  // the composing thread, but see Table
  prometheus::Gauge& ready_;

  const HttpServer& http_;

  std::mutex mu_;
  RunningConfig config_;

  Ticker reading_;
  web::StatusPage page_;
};

}  // namespace lockstep::publisher
