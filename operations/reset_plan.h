#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "offsets/reset.h"
#include "pubsub/admin.h"
#include "state/positions/offsets.h"

namespace lockstep::operations {

// What an operator asks for.
struct ResetWish {
  state::SeekTarget target;
  offsets::ResetMode mode = offsets::ResetMode::kKeep;
  bool accept_missing = false;
  bool emulator = false;  // it may lack Seek: that is found out first
};

// What a reset would do, for the dry run.
struct ResetPlan {
  state::GroupEpoch before;
  std::optional<state::GroupOffset> offset;
  state::SeekTarget seek;
  std::optional<WallTime> earliest;  // what can be replayed; none = it could not be found out
  int64_t redelivered = -1;          // about; -1 = unknown
  std::vector<std::pair<std::string, int64_t>> emptied;  // table, rows
};

// Looks, and changes nothing. Refusals are statuses whose sentence says what is possible instead.
absl::StatusOr<ResetPlan> PlanReset(postgres::Connection& connection, const state::Schema& schema,
                                    const ConsumerGroup& group,
                                    const std::vector<std::string>& tables, pubsub::Admin& admin,
                                    const ResetWish& wish, WallTime now);

}  // namespace lockstep::operations
