#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "publisher/outbox/outbox_rows.h"

namespace lockstep::publisher {

// What the database says about one outbox, for the status page and the gauges.
struct OutboxRecord : Backlog {
  int64_t dead = 0;
  int64_t quarantined = 0;
};

// Reads the backlog and the dead rows of outboxes (never a payload), on a session of its own.
// Counts are bounded and never take more than a few percent of the time: a table whose count was
// slow is looked at less often. Owned by one thread.
class OutboxReader {
 public:
  explicit OutboxReader(const std::string& database);

  // The outbox's part of the status document (web/README.md), and its numbers. Answers the last
  // ones again while it is too early for new ones.
  absl::StatusOr<nlohmann::json> Read(const std::string& table, OutboxRecord& record);

 private:
  struct Table {
    SteadyTime next;
    nlohmann::json part = nlohmann::json::object();
    OutboxRecord record;
  };

  const postgres::ConnectionOptions options_;
  std::unique_ptr<postgres::Connection> session_;
  std::map<std::string, Table> tables_;
};

}  // namespace lockstep::publisher
