#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "platform/metrics.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/server_load.h"
#include "publisher/outbox/outbox_rows.h"
#include "web/document.h"

namespace lockstep::publisher {

// Looks into the outboxes for the gauges and for the status page: now and then, and every two
// seconds while somebody watches; less often where counting is slow. A thread of its own, which may
// hang with the database; on another, ages grow until the next look.
class OutboxWatch final : public Service {
 public:
  struct Parts {
    std::string database;
    std::vector<std::string> tables;
    Millis every{30'000};  // while nobody watches
    // Every publisher sees every replay; one of them counts it.
    std::function<bool(const std::string& table)> counts_replays;
    MetricsRegistry& metrics;
    std::string instance;  // as the others find it in the database
  };
  explicit OutboxWatch(Parts parts);
  ~OutboxWatch() override { Stop(); }

  absl::Status Start() override {
    RETURN_IF_ERROR(aging_.Start());
    return ticker_.Start();
  }
  void Stop() override {
    aging_.Stop();
    ticker_.Stop();
    SayGoodbye();
  }

  // From any thread. Somebody watches: true until it is said otherwise.
  void SetWatched(bool watched) { watched_ = watched; }
  // Where this process's page is, as others reach it: written to the database with the next look.
  void SetAddress(const std::string& address);
  // Those of this database that run, this one among them, as of the last look.
  nlohmann::json Publishers() const;
  // The outbox as it was last read, older by the time since.
  OutboxRecord Of(const std::string& table) const;
  const web::DatabaseReading& database() const { return database_; }

  // One look, now. REQUIRES: not started.
  void Look();

 private:
  void Round();
  void Age();
  void Show(const std::string& table, const OutboxRecord& record);
  absl::StatusOr<OutboxRecord> Read(const std::string& table);
  void SayGoodbye();
  // Tells the database of this process, and reads who else there is.
  absl::Status Meet();
  // Those that have not ended.
  absl::Status ReadBackfills(const std::string& table, OutboxRecord& record);

  const Parts parts_;
  const WallTime started_at_ = Clock::System().Now();
  std::map<std::string, std::vector<prometheus::Gauge*>> gauges_;  // by table
  prometheus::Counter& replays_;
  postgres::ServerLoad load_;
  web::DatabaseReading database_;
  // Of the ticker's thread.
  std::unique_ptr<postgres::Connection> session_;
  std::map<std::string, std::optional<int64_t>> audits_;  // the newest row seen, by table
  SteadyTime not_before_;          // the next look: large tables are counted less often
  std::atomic<bool> met_ = false;  // the database has a row of this process
  absl::Status told_;  // the failure that the log has: the next look may be two seconds away
  std::atomic<bool> watched_ = false;
  std::atomic<bool> due_ = false;  // whatever was read lately

  mutable std::mutex mu_;
  std::map<std::string, std::pair<OutboxRecord, SteadyTime>> records_;  // and when it was read
  std::string address_;
  nlohmann::json publishers_ = nlohmann::json::array();

  // Last: their threads use the rest.
  Ticker aging_;
  Ticker ticker_;
};

}  // namespace lockstep::publisher
