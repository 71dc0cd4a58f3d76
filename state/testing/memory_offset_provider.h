#pragma once

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "state/positions/offsets.h"

namespace lockstep::state {

// Offsets that die with the process: for tests and for consumers that keep none. Takes no
// transaction (null will do) and every instance counts as live. Safe from any thread.
class MemoryOffsetProvider : public OffsetProvider {
 public:
  absl::StatusOr<std::optional<GroupOffset>> Load(postgres::Transaction* transaction,
                                                  const ConsumerGroup& group) override;
  absl::Status Save(postgres::Transaction* transaction, const LaneOffset& offset) override;
  absl::Status Reset(postgres::Transaction* transaction, const ResetRecord& record) override;

  std::vector<ResetRecord> audit() const;

 private:
  using LaneKey = std::tuple<ConsumerGroup, std::string, int>;

  mutable std::mutex mu_;
  std::map<LaneKey, GroupOffset> lanes_;
  std::map<ConsumerGroup, GroupOffset> resets_;  // until a lane has committed something
  std::vector<ResetRecord> audit_;
};

}  // namespace lockstep::state
