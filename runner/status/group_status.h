#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "platform/clock.h"

namespace lockstep::runner {

enum class GroupState {
  kStarting,
  kWaiting,  // for the database or for Pub/Sub; goes on by itself
  kRunning,
  kHalted,  // needs a cure
  kPaused,  // by an operator
  kStopped,
};
constexpr std::string_view Name(GroupState state) {
  constexpr std::string_view kNames[] = {"starting", "waiting", "running",
                                         "halted",   "paused",  "stopped"};
  static_assert(std::size(kNames) == static_cast<size_t>(GroupState::kStopped) + 1);
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
  std::string waits_for;   // whose lock on a table made it fail; empty if no such thing did
  std::string outage;      // what a handler answers that does not accept events now; empty = none

  int64_t in_hand() const { return queued + in_batch; }
};

// What has become of a group's messages since the start.
struct GroupCounts {
  int64_t deliveries = 0;
  // Events by how they ended.
  int64_t applied = 0, superseded = 0, ignored = 0, duplicates = 0, parked = 0, ended_dead = 0;
  int64_t released = 0, gaps = 0;
  int64_t went_back = 0;  // superseded ones that were new, and published after what superseded them
  int64_t snapshots = 0, snapshots_overtaken = 0;  // that were applied, or had nothing new
  int64_t dead = 0;                                // dead letters written, of released events too
  int64_t acks = 0, ack_failures = 0, nacks = 0;
  int64_t batches = 0, failures = 0;
  int64_t offsets_saved = 0, offsets_failed = 0;

  // Messages brought to an end.
  int64_t handled() const {
    return applied + superseded + ignored + duplicates + parked + ended_dead;
  }
};

// Where a count is shown: in the API, among the events of runner_events_total, as a metric of its
// own.
struct GroupCounter {
  int64_t GroupCounts::*count;
  const char* field = nullptr;   // of the API
  const char* ending = nullptr;  // the result under which runner_events_total has it
  const char* metric = nullptr;
  const char* help = nullptr;
  const char* result = nullptr;  // that metric's label of this name
};

inline constexpr GroupCounter kGroupCounters[] = {
    {&GroupCounts::deliveries, "deliveries", nullptr, "runner_deliveries_total",
     "Messages received"},
    {&GroupCounts::applied, "applied", "applied"},
    {&GroupCounts::superseded, "superseded", "superseded", "runner_stale_versions_total",
     "Events that a newer version had superseded"},
    {&GroupCounts::went_back, "went_back", nullptr, "runner_versions_went_back_total",
     "New events with a version below the one applied, acked unapplied"},
    {&GroupCounts::ignored, "ignored", "ignored"},
    {&GroupCounts::duplicates, "duplicates", "duplicate", "runner_duplicates_total",
     "Events that the inbox knew"},
    {&GroupCounts::parked, "parked", "parked", "runner_parked_total", "Events that were parked"},
    {&GroupCounts::ended_dead, nullptr, "dead"},
    {&GroupCounts::released, "released", nullptr, "runner_released_total",
     "Parked events that were applied"},
    {&GroupCounts::gaps, "gaps", nullptr, "runner_gaps_total",
     "Events that were parked because a version was missing"},
    {&GroupCounts::snapshots, "snapshots", nullptr, "runner_snapshots_total", "Snapshots by result",
     "applied"},
    {&GroupCounts::snapshots_overtaken, "snapshots_superseded", nullptr, "runner_snapshots_total",
     "Snapshots by result", "superseded"},
    {&GroupCounts::dead, "dead", nullptr, "runner_dead_letters_total", "Dead letters written"},
    {&GroupCounts::acks, "acks", nullptr, "runner_acks_total", "Acks by result", "ok"},
    {&GroupCounts::ack_failures, "ack_failures", nullptr, "runner_acks_total", "Acks by result",
     "failed"},
    {&GroupCounts::nacks, "nacks", nullptr, "runner_nacks_total", "Messages given back to the bus"},
    {&GroupCounts::batches, "batches"},
    {&GroupCounts::failures, "failures", nullptr, "runner_transaction_failures_total",
     "Transactions that failed and were retried"},
    {&GroupCounts::offsets_saved, nullptr, nullptr, "offset_save_total", "Offsets saved"},
    {&GroupCounts::offsets_failed, nullptr, nullptr, "offset_save_failure_total",
     "Offsets that could not be saved"},
};

// Seconds of the newest sample in each stage: occurred, published, received, committed.
struct Stages {
  double occurred_to_published = 0, published_to_received = 0, received_to_committed = 0;
};

// A group as it stands, for /readyz, the status page and the JSON API. A copy: nothing in it moves.
struct GroupStatus {
  std::string name;
  std::string subscription;
  std::string topic;  // of it, as Pub/Sub says; empty = not known
  std::string file;   // that declares its projections
  GroupState state = GroupState::kStarting;
  std::string reason;            // why it waits or has halted; empty when it runs
  std::string stream;            // why there is no stream; empty when there is one
  std::string snapshots_stream;  // the same of its second subscription; empty when there is none
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
