#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "platform/daemon/service_thread.h"
#include "runner/lane/ack_stage.h"
#include "runner/lane/connection_source.h"
#include "runner/lane/lane_queue.h"
#include "runner/lane/lane_recorder.h"

namespace lockstep::runner {

// One thread with one connection: takes what has queued, writes it in one transaction, acks it.
// While that commits the next batch gathers. A message's ordering key always leads to the same
// lane, so that its events stay in order.
class Lane {
 public:
  // `all_in_hand`: messages, of all lanes. `on_end`: when the lane does not go on, with what
  // FailurePolicy answers. Both are called on the lane's thread; everything outlives the lane.
  Lane(int index, GroupContext& group, const state::GroupEpoch& under, AckStage& acks,
       std::function<int64_t()> all_in_hand, std::function<void(const absl::Status&)> on_end);
  ~Lane();

  absl::Status Start();
  // Aggregates with parked events that are due: they are worked off first.
  void Release(std::vector<std::string> keys) { queue_.Release(std::move(keys)); }
  // What arrives after the lane was given up goes back at once: the receiver still listens.
  void Push(std::vector<LaneQueue::Waiting> deliveries) {
    acks_.GiveBack(queue_.Push(std::move(deliveries)));
  }
  // These leases are lost: what waits of their keys is dropped, the rest of it given back.
  void Drop(const std::vector<pubsub::AckToken>& lost) { acks_.GiveBack(queue_.DropKeysOf(lost)); }

  void Close();   // finish what is in hand, but wait for no handler that is out
  void GiveUp();  // give back what waits, end the retries
  void Join() { thread_.Stop(); }
  int64_t in_hand() const { return queue_.in_hand(); }
  bool releasing() const { return queue_.releasing(); }
  bool done() const { return done_; }
  int backend_pid() const { return connections_.backend_pid(); }

  LaneStatus status() const;

 private:
  void Run();
  absl::Status Work(std::vector<LaneQueue::Waiting> deliveries, FailurePolicy& policy);
  void Hold(std::vector<Inbound*>& items);
  absl::Status AckUnapplied(std::vector<pubsub::AckToken> tokens);

  const int index_;
  GroupContext& group_;
  const state::GroupEpoch& under_;
  AckStage& acks_;
  const std::function<int64_t()> all_in_hand_;
  const std::function<void(const absl::Status&)> on_end_;
  LaneRecorder recorder_;
  LaneQueue queue_;
  ConnectionSource connections_;
  std::vector<Inbound> held_;  // not admitted; the lane's thread's own
  std::atomic<bool> done_{false};
  std::stop_source closing_;
  ServiceThread thread_;  // last: it uses the rest
};

}  // namespace lockstep::runner
