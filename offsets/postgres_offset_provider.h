#pragma once

#include "offsets/offset_provider.h"
#include "offsets/state_schema.h"

namespace lockstep::offsets {

// Offsets in the service's state schema. REQUIRES: a transaction in every call.
class PostgresOffsetProvider : public OffsetProvider {
 public:
  explicit PostgresOffsetProvider(const StateSchema& schema);

  absl::StatusOr<std::optional<GroupOffset>> Load(postgres::Transaction* transaction,
                                                  const ConsumerGroup& group) override;
  absl::Status Save(postgres::Transaction* transaction, const LaneOffset& offset) override;
  absl::Status Reset(postgres::Transaction* transaction, const ResetRecord& record) override;

 private:
  const StateStatement load_;
  const StateStatement save_;
  const StateStatement clear_;
  const StateStatement place_;
  const StateStatement record_;
};

}  // namespace lockstep::offsets
