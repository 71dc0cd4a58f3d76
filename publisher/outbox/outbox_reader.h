#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
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
  int64_t replays = 0;  // by hand, since the look before
  bool known = false;   // false = not read yet
  // These and the dead rows, as the outbox's part of the status document has them (web/README.md).
  nlohmann::json part = nlohmann::json::object();
};

// Reads the backlog and the dead rows of outboxes (never a payload), on a session of its own.
// Counts are bounded and never take more than a few percent of the time: a table whose count was
// slow is looked at less often. Owned by one thread.
class OutboxReader {
 public:
  explicit OutboxReader(const std::string& database);

  // Answers the last numbers again while it is too early for new ones.
  absl::StatusOr<OutboxRecord> Read(const std::string& table);
  // Leaves the database alone until the next Read.
  void Disconnect() { session_.reset(); }

 private:
  struct Table {
    SteadyTime next;  // not counted before
    OutboxRecord record;
    std::optional<int64_t> audit;  // the newest row of the audit that was seen
  };

  const postgres::ConnectionOptions options_;
  std::unique_ptr<postgres::Connection> session_;
  std::map<std::string, Table> tables_;
};

}  // namespace lockstep::publisher
