#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "state/schema.h"

namespace lockstep::state {

// What an instance says about itself each second; `lockstepctl lag` and the progress bars read it.
struct InstanceReport {
  int64_t epoch = 0;
  int lanes = 0;
  int64_t handled = 0;  // messages brought to an end under this epoch
  int64_t queued = 0;
  std::vector<int> idle_lanes;  // with nothing in hand: they don't hold the group's offset back
  std::optional<Millis> publish_lag, receive_lag, commit_lag;  // of the last commit
  std::optional<Millis> lag;          // how old its read model is: idle is 0, stuck grows
  std::string lag_basis;              // what that is measured by, in words
  std::string state;                  // the word on its status page
  std::optional<WallTime> heartbeat;  // when the newest one that it has heard was published
  std::string mapping;                // Projector::Mapping: how it turns events into rows
  bool snapshots_open = true;         // false: its second subscription has no stream
  std::string address;                // of its status page, for others; empty = it has none
  std::string version;                // of the program
  WallTime started_at = Clock::System().Now();  // the process
};

// The instances of one group that are running.
class Instances : public GroupStore {
 public:
  using GroupStore::GroupStore;

  // Says that an instance is alive: its offsets count while it does so.
  absl::Status Heartbeat(postgres::Connection& connection, const std::string& instance,
                         const InstanceReport& report) const;
  // Its offsets no longer count (a clean stop).
  absl::Status Leave(postgres::Connection& connection, const std::string& instance) const;
  // Those that were seen within the last minute, for they may be writing, and have another mapping.
  absl::StatusOr<std::vector<std::string>> WithOtherMapping(postgres::Executor& database,
                                                            const std::string& mapping) const;
  absl::Status ForgetAll(postgres::Transaction& transaction) const;
};

}  // namespace lockstep::state
