#pragma once

#include <string>
#include <vector>

#include "runner/lane/group_context.h"

namespace lockstep::runner {

// What a session begins with.
struct ReadyToRun {
  state::GroupEpoch under;
  std::vector<std::string> release;  // aggregates with parked events that are due
  std::string topic;                 // of the subscription; empty = it can't be read
};

// The way to a session: the state schema, the projections against the live tables, the epoch, the
// subscription, the epoch's Seek. Fills `ready` as far as it comes, and answers what stands in the
// way: UNAVAILABLE passes by itself (a fault of the connection does), everything else halts the
// group. Runs on the group's thread.
absl::Status MakeReady(GroupContext& group, postgres::Connection& connection, ReadyToRun& ready);

}  // namespace lockstep::runner
