#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "runner/lane/ack_stage.h"
#include "runner/lane/connection_source.h"
#include "runner/lane/failure_policy.h"
#include "runner/lane/intake.h"
#include "runner/lane/lane_queue.h"
#include "runner/options/group_options.h"
#include "runner/seek/restore_witness.h"
#include "runner/status/group_status.h"
#include "state/epochs.h"

namespace lockstep::runner {

class Admission;

// What the lanes of a session have in common; all of it outlives them.
struct LaneParts {
  const GroupOptions& options;
  const Batch& batch;
  const Intake& intake;
  GroupMetrics& metrics;
  AckStage& acks;
  DeadLetterBudget& budget;
  std::function<int64_t()> in_hand;  // messages, of all lanes
  postgres::ConnectionOptions connection;
  state::GroupEpoch under;
  std::string instance;
  RestoreWitness* witness = nullptr;     // null = nobody looks
  const Admission* admission = nullptr;  // null = everything is applied as it comes
};

// One thread with one connection: takes what has queued, writes it in one transaction, acks it.
// While that commits the next batch gathers. A message's ordering key always leads to the same
// lane, so that its events stay in order.
class Lane : private BatchObserver {
 public:
  // Called on the lane's thread when it can't go on, with the reason.
  using Ended = std::function<void(Verdict, const std::string& reason)>;

  Lane(int index, const LaneParts& parts, Ended ended);
  ~Lane() override;

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
  Verdict Work(std::vector<LaneQueue::Waiting> deliveries, FailurePolicy& policy);
  void Hold(std::vector<Inbound*>& items);
  Verdict AckUnapplied(std::vector<pubsub::AckToken> tokens);

  void OnCommitted(std::span<Inbound* const> items, const BatchResult& result) override;
  void OnGivenBack(std::span<Inbound* const> items) override;
  void OnFailure(const absl::Status& status, std::span<Inbound* const> items) override;

  const int index_;
  const LaneParts& parts_;
  const Ended ended_;
  LaneQueue queue_;
  std::stop_source give_up_;
  ConnectionSource connections_;
  std::vector<Inbound> held_;  // not admitted; the lane's thread's own
  std::atomic<int64_t> in_batch_{0};
  std::atomic<int64_t> due_{0};  // aggregates to release, the one at hand included
  std::atomic<bool> closing_{false};
  std::atomic<bool> done_{false};

  mutable std::mutex mu_;
  WallTime last_commit_;
  std::string last_message_id_;
  std::string last_error_;
  std::optional<LaneQueue::Times> batch_oldest_;  // of the transaction under way

  std::thread thread_;
};

}  // namespace lockstep::runner
