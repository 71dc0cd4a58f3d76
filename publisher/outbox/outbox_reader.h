#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"

namespace lockstep::publisher {

// What the database says about one outbox, for the status page and the gauges.
struct OutboxRecord {
  int64_t pending = 0;  // not published, not dead, not quarantined; those held back included
  int64_t locked = 0;
  int64_t dead = 0;
  int64_t quarantined = 0;
  Millis oldest{0};  // age of the oldest row that may go; 0 = none
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
  struct Table;

  absl::StatusOr<postgres::Connection*> Session();
  absl::Status ReadDead(postgres::Connection& session, const std::string& quoted,
                        nlohmann::json& part, OutboxRecord& record);

  postgres::ConnectionOptions options_;
  std::unique_ptr<postgres::Connection> session_;
  std::map<std::string, std::shared_ptr<Table>> tables_;  // shared: Table stays unknown here
};

}  // namespace lockstep::publisher
