#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "platform/daemon/service_thread.h"
#include "runner/lane/ack_stage.h"
#include "runner/lane/connection_source.h"
#include "runner/lane/lane_queue.h"
#include "runner/lane/lane_recorder.h"

namespace lockstep::runner {

// Who composes lanes; called on their threads.
class LaneOwner {
 public:
  virtual ~LaneOwner() = default;
  // Messages, of all lanes.
  virtual int64_t InHand() const = 0;
  // A lane does not go on; `reason` when it has halted.
  virtual void OnLaneEnded(WorkEnd end, const std::string& reason) = 0;
};

// One thread with one connection: takes what has queued, writes it in one transaction, acks it.
// While that commits the next batch gathers. A message's ordering key always leads to the same
// lane, so that its events stay in order.
class Lane {
 public:
  // All of it outlives the lane.
  Lane(int index, GroupContext& group, const state::GroupEpoch& under, AckStage& acks,
       LaneOwner& owner);
  ~Lane();

  absl::Status Start();
  // Aggregates with parked events that are due: they are worked off first.
  void Release(std::vector<std::string> keys) { queue_.Release(std::move(keys)); }
  void Push(std::vector<LaneQueue::Waiting> deliveries);
  // These leases are lost: what waits of their keys is dropped, the rest of it given back.
  void Drop(const std::vector<pubsub::AckToken>& lost);

  void Close() { queue_.Close(); }  // finish what is in hand
  void GiveUp();                    // give back what waits, end the retries
  void Join() { thread_.Stop(); }
  int64_t in_hand() const { return queue_.in_hand(); }
  bool releasing() const { return queue_.releasing(); }
  bool done() const { return done_; }
  int backend_pid() const { return connections_.backend_pid(); }

  LaneStatus status() const;

 private:
  void Run();
  WorkEnd Work(std::vector<LaneQueue::Waiting> deliveries, FailurePolicy& policy);
  void Hold(std::vector<Inbound*>& items);
  WorkEnd AckUnapplied(std::vector<pubsub::AckToken> tokens);

  const int index_;
  GroupContext& group_;
  const state::GroupEpoch& under_;
  AckStage& acks_;
  LaneOwner& owner_;
  LaneRecorder recorder_;
  LaneQueue queue_;
  ConnectionSource connections_;
  std::vector<Inbound> held_;  // not admitted; the lane's thread's own
  std::atomic<bool> done_{false};
  ServiceThread thread_;  // last: it uses the rest
};

}  // namespace lockstep::runner
