#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "postgres/connection.h"
#include "state/schema.h"

namespace lockstep::runner {

// What the database says about one group, for the status page and the gauges.
struct GroupRecord {
  int64_t parked_keys = 0;
  int64_t parked_events = 0;
  int64_t version_lag = 0;  // newest version received − stored, of the aggregate furthest behind
  int64_t dead_letters = 0;
  std::optional<int64_t> replays;  // dead letters sent again, ever; none = not read yet
  WallTime checkpoint_at;          // of the newest; the epoch of the clock = none
  // The rows behind these numbers, as the group's part of the status document has them.
  nlohmann::json part = nlohmann::json::object();
};

// Reads what a service's state schema says about its groups: offsets, parked keys, dead letters
// (never their payloads), what operators did, checkpoints. A session of its own, so that a request
// never waits for a database. Owned by one thread.
class StateReader {
 public:
  StateReader(const std::string& database, const state::Schema& schema);

  absl::StatusOr<GroupRecord> Read(const std::string& group);

 private:
  postgres::ConnectionOptions options_;
  std::unique_ptr<postgres::Connection> session_;
  const state::Schema schema_;
};

}  // namespace lockstep::runner
