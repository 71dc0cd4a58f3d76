#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "runner/lane/ack_stage.h"
#include "runner/lane/connection_source.h"
#include "runner/lane/failure_policy.h"
#include "runner/lane/group_context.h"
#include "runner/lane/lane_queue.h"
#include "runner/lane/lane_recorder.h"
#include "runner/status/group_status.h"

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

  void Start();
  // Aggregates with parked events that are due: they are worked off first.
  void Release(std::vector<std::string> keys);
  void Push(std::vector<LaneQueue::Waiting> deliveries);
  // These leases are lost: what waits of their keys is dropped, the rest of it given back.
  void Drop(const std::vector<pubsub::AckToken>& lost);

  void Close();   // finish what is in hand
  void GiveUp();  // give back what waits, end the retries
  void Join();
  int64_t in_hand() const { return static_cast<int64_t>(queue_.size()) + in_batch_; }
  bool releasing() const { return due_ > 0; }
  bool done() const { return done_; }
  int backend_pid() const { return connections_.backend_pid(); }

  LaneStatus status() const;

 private:
  void Run();
  void NoteBatch(const std::vector<LaneQueue::Waiting>& deliveries);
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
  std::stop_source give_up_;
  ConnectionSource connections_;
  std::vector<Inbound> held_;  // not admitted; the lane's thread's own
  std::atomic<int64_t> in_batch_{0};
  std::atomic<int64_t> due_{0};  // aggregates to release, the one at hand included
  std::atomic<bool> closing_{false};
  std::atomic<bool> done_{false};

  mutable std::mutex mu_;
  std::optional<LaneQueue::Times> batch_oldest_;  // of the transaction under way

  std::thread thread_;
};

}  // namespace lockstep::runner
