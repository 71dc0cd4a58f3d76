#pragma once

#include <vector>

#include "runner/lane/group_context.h"
#include "runner/lane/lane_queue.h"
#include "runner/message/inbound.h"

namespace lockstep::runner {

// The messages of one batch, sorted by what is to be done with them.
struct Prepared {
  std::vector<Inbound> events;                // to be applied, or poison
  std::vector<pubsub::AckToken> to_ack_only;  // heartbeats, and what was published before a Seek
};

// Turns deliveries into events: parses, decodes, maps. What can't be is poison; code of
// projections that throws makes poison too, not a dead thread. Runs on the lane's thread: with
// several lanes one decodes while another waits for its commit.
Prepared Prepare(std::vector<LaneQueue::Waiting> deliveries, GroupContext& group,
                 const state::GroupEpoch& under);

}  // namespace lockstep::runner
