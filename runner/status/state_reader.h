#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "platform/strong_id.h"
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
  // Of the comparison with the source; no table = none is wanted.
  int64_t verified_tables = 0;
  int64_t rows_verified = 0;
  std::map<std::string, int64_t> differences;  // by class
  WallTime verified_at;  // of the table that was compared in full longest ago, or is to be since
  // The rows behind these numbers, as the group's part of the status document has them.
  nlohmann::json part = nlohmann::json::object();
};

// Reads what a service's state schema says about a group: offsets, parked keys, dead letters (never
// their payloads), what operators did, checkpoints.
absl::StatusOr<GroupRecord> ReadRecord(postgres::Connection& session, const state::Schema& schema,
                                       const ConsumerGroup& group);

}  // namespace lockstep::runner
