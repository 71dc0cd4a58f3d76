#pragma once

#include <mutex>
#include <string>

#include "runner/lane/ack_stage.h"
#include "runner/lane/failure_policy.h"
#include "runner/lane/group_context.h"
#include "runner/status/group_status.h"

namespace lockstep::runner {

// What a lane says of its transactions: acks what has committed, gives back what will not be
// applied, logs, counts, and remembers what its status shows. Called on the lane's thread; Fill
// from any.
class LaneRecorder : public BatchObserver {
 public:
  LaneRecorder(int lane, GroupContext& group, const state::GroupEpoch& under, AckStage& acks)
      : lane_(lane), group_(group), under_(under), acks_(acks) {}

  void OnCommitted(std::span<Inbound* const> items, const BatchResult& result) override;
  void OnGivenBack(std::span<Inbound* const> items) override;
  void OnFailure(const absl::Status& status, std::span<Inbound* const> items) override;

  void Fill(LaneStatus& status) const;

 private:
  const int lane_;
  GroupContext& group_;
  const state::GroupEpoch& under_;
  AckStage& acks_;

  mutable std::mutex mu_;
  WallTime last_commit_;
  std::string last_message_id_;
  std::string last_error_;
};

}  // namespace lockstep::runner
