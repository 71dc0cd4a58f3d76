#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "runner/lane/lane.h"

namespace lockstep::runner {

// One stream under one epoch, with its lanes: whatever it delivers belongs to that epoch, and the
// session ends when the epoch does. A group with a second subscription (`snapshots`) has a second
// stream into the same lanes; offsets, Seeks and health are the first one's. Composed anew by Group
// for each epoch.
class Session : private pubsub::DeliverySink {
 public:
  // `group` outlives the session.
  Session(GroupContext& group, state::GroupEpoch under);
  ~Session() override { Stop(Millis(0)); }

  // `release`: aggregates with parked events that are due.
  absl::Status Start(const std::vector<std::string>& release);
  // More of them.
  void Release(const std::vector<std::string>& keys);
  bool releasing() const;

  // Waits until the session ends by itself, `stop` is requested or the time is over. OK while it
  // goes on; ABORTED = its epoch is over; everything else = the group can't go on, for this reason.
  absl::Status WaitFor(Millis time, const std::stop_token& stop);

  // Pulls no more; what is in hand goes on. From any thread; Stop follows.
  void Close();
  // Stops pulling, finishes and acks what is in hand within `drain`, gives back the rest.
  void Stop(Millis drain);

  std::string stream_state() const;
  std::string snapshots_state() const;  // empty when there is a stream
  // Connected, nothing in hand, and nothing came for so long.
  bool DrainedFor(Millis quiet) const;
  std::vector<LaneStatus> lanes() const;

 private:
  void OnDeliveries(std::vector<pubsub::Delivery> deliveries) override;
  void OnLeaseLost(std::vector<pubsub::AckToken> tokens) override;
  void OnStreamState(const absl::Status& state) override;
  int64_t InHand() const;
  void OnLaneEnded(const absl::Status& end);
  void CancelStatements();
  bool LanesDone() const;
  size_t LaneFor(const std::string& ordering_key);

  // What the second stream delivers goes into the same lanes, marked.
  struct Aside : pubsub::DeliverySink {
    explicit Aside(Session& owner) : session(owner) {}
    void OnDeliveries(std::vector<pubsub::Delivery> deliveries) override;
    void OnLeaseLost(std::vector<pubsub::AckToken> tokens) override;
    void OnStreamState(const absl::Status& state) override;
    Session& session;
  };
  void NoteState(const absl::Status& state, const std::string& subscription, std::string& text);

  GroupContext& group_;
  const state::GroupEpoch under_;
  Aside aside_;
  const std::unique_ptr<pubsub::Receiver> receiver_;
  const std::unique_ptr<pubsub::Receiver> snapshots_;  // null = the group has no second stream
  AckStage acks_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<size_t> next_lane_{0};  // for messages without a key
  std::atomic<SteadyTime> last_delivery_;
  bool stopped_ = false;

  mutable std::mutex mu_;
  std::condition_variable_any changed_;
  absl::Status end_;
  std::string stream_state_ = "not connected yet";
  std::string snapshots_state_ = "not connected yet";
};

}  // namespace lockstep::runner
