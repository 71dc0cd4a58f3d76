#pragma once

#include <mutex>

#include "runner/lane/ack_stage.h"
#include "runner/lane/failure_policy.h"
#include "runner/lane/group_context.h"
#include "runner/status/group_status.h"

namespace lockstep::runner {

// What a lane says of its transactions: acks what has committed, gives back what will not be
// applied, logs, counts, and remembers what its status shows. Called on the lane's thread; status
// from any.
//
// Log lines have `group message_id event_id ordering_key trace_id` where they concern one message
// (ids as far as they could be read), and never a payload.
class LaneRecorder : public BatchObserver {
 public:
  LaneRecorder(int lane, GroupContext& group, const state::GroupEpoch& under, AckStage& acks)
      : group_(group), under_(under), acks_(acks), status_{.lane = lane} {}

  void OnCommitted(std::span<Inbound* const> items, const BatchResult& result) override;
  void OnGivenBack(std::span<Inbound* const> items) override;
  void OnFailure(const absl::Status& status, std::span<Inbound* const> items,
                 const std::string& waits_for) override;
  void OnOutage(std::span<Inbound* const> items, const std::string& reason, Millis pause) override;

  // As far as it is known here: not what is in hand.
  LaneStatus status() const;

 private:
  void LogPoison(std::string_view what, const Inbound& item) const;
  void LogFate(const Inbound& item, Fate fate) const;
  void NoteIfItWentBack(const Inbound& item) const;
  void LogFailure(const absl::Status& status, std::span<Inbound* const> items,
                  const std::string& waits_for) const;

  GroupContext& group_;
  const state::GroupEpoch& under_;
  AckStage& acks_;

  mutable std::mutex mu_;
  LaneStatus status_;
};

}  // namespace lockstep::runner
