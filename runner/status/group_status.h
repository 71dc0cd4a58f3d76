#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/clock.h"
#include "runner/status/group_counts.h"

namespace lockstep::runner {

enum class GroupState {
  kStarting,
  kWaiting,  // for the database or for Pub/Sub; goes on by itself
  kRunning,
  kHalted,  // needs a cure
  kStopped,
};
constexpr std::string_view Name(GroupState state) {
  constexpr std::string_view kNames[] = {"starting", "waiting", "running", "halted", "stopped"};
  return kNames[static_cast<size_t>(state)];
}

struct LaneStatus {
  int lane = 0;
  int64_t queued = 0;
  int64_t in_batch = 0;  // messages of the transaction under way
  WallTime last_commit;
  std::string last_message_id;
  // The oldest message in hand; the epoch of the clock = none.
  WallTime oldest_published;
  WallTime oldest_received;
  std::string last_error;  // of the transaction that failed last; empty once one has committed

  int64_t in_hand() const { return queued + in_batch; }
};

// Seconds of the newest sample in each stage: occurred, published, received, committed.
struct Stages {
  double occurred_to_published = 0, published_to_received = 0, received_to_committed = 0;
};

// A group as it stands, for /readyz, the status page and the JSON API. A copy: nothing in it moves.
struct GroupStatus {
  std::string name;
  std::string subscription;
  std::string file;  // that declares its projections
  GroupState state = GroupState::kStarting;
  std::string reason;  // why it waits or has halted; empty when it runs
  std::string stream;  // why there is no stream; empty when there is one
  int64_t epoch = 0;
  int generation = 0;
  int slot = 0;
  WallTime last_commit;     // the epoch of the clock = never
  WallTime last_heartbeat;  // when the newest one was published; the epoch = none so far
  WallTime caught_up;       // when it last had a stream and nothing in hand; the epoch = never
  WallTime last_turn;       // when the group's own loop last went round
  WallTime database_ok;     // when the group's own session last answered
  std::string database_error;
  Millis lag{0};  // from publish to commit, at the last offset saved
  GroupCounts counts;
  Stages stages;
  std::vector<LaneStatus> lanes;

  bool ready() const { return state == GroupState::kRunning && stream.empty(); }
  int64_t in_hand() const {
    int64_t messages = 0;
    for (const LaneStatus& lane : lanes) messages += lane.in_hand();
    return messages;
  }
};

}  // namespace lockstep::runner
