#pragma once

#include "offsets/offset_provider.h"
#include "postgres/connection.h"
#include "state/positions/offsets.h"

namespace lockstep::offsets {

// Offsets in the service's state schema. REQUIRES: a transaction in every call.
class PostgresOffsetProvider : public OffsetProvider {
 public:
  explicit PostgresOffsetProvider(const state::Schema& schema) : offsets_(schema) {}

  absl::StatusOr<std::optional<GroupOffset>> Load(postgres::Transaction* transaction,
                                                  const ConsumerGroup& group) override {
    return offsets_.Load(*transaction, group);
  }
  absl::Status Save(postgres::Transaction* transaction, const LaneOffset& offset) override {
    return offsets_.Save(*transaction, offset);
  }
  absl::Status Reset(postgres::Transaction* transaction, const ResetRecord& record) override {
    return offsets_.Reset(*transaction, record);
  }

 private:
  const state::Offsets offsets_;
};

}  // namespace lockstep::offsets
