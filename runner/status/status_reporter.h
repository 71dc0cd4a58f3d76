#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "platform/daemon/daemon.h"
#include "platform/daemon/http_server.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "platform/metrics.h"
#include "postgres/server_load.h"
#include "runner/status/group_view.h"
#include "runner/status/health_options.h"
#include "runner/status/state_reader.h"
#include "web/document.h"
#include "web/history.h"
#include "web/status_page.h"

namespace lockstep::runner {

// Puts together what the status page, its JSON and the gauges of a runner say: what the groups know
// of themselves, and what a session of its own reads from the database. Two threads: one reads the
// database every two seconds and may hang with it, the other composes the document every second and
// never waits.
class StatusReporter final : public Service {
 public:
  struct Parts {
    std::string database;
    std::string state_schema;
    std::string instance;
    HealthOptions health;
    RunningConfig config;     // as read; secrets masked
    std::string config_file;  // where from; empty = no file
    // By group and backfill: how `lockstepctl verify` is told what to compare.
    std::map<std::string, std::map<std::string, std::string>> comparing;
    std::function<std::vector<GroupStatus>()> groups;
    MetricsRegistry& metrics;
  };
  // REQUIRES: `http` is not started yet, and is stopped before this object is destroyed.
  StatusReporter(Parts parts, HttpServer& http);
  ~StatusReporter() override { Stop(); }

  absl::Status Start() override;
  void Stop() override;

  // The configuration was read again. From any thread.
  void SetConfig(const RunningConfig& config) { daemon_.SetConfig(config); }

 private:
  absl::Status ReadDatabase();
  nlohmann::json Compose();

  const Parts parts_;
  web::Daemon daemon_;
  web::DatabaseReading database_;
  const state::Schema schema_;
  std::unique_ptr<postgres::Connection> session_;  // the reading thread
  postgres::ServerLoad load_;                      // the reading thread
  prometheus::Gauge& inbox_bytes_;
  web::History history_;                       // the composing thread
  std::map<std::string, GroupGauges> gauges_;  // the composing thread

  std::mutex mu_;
  std::map<std::string, GroupRecord> records_;  // as last read; none = not yet

  Ticker reading_;
  web::StatusPage page_;
};

}  // namespace lockstep::runner
