#pragma once

#include "state/positions/offset_provider.h"

namespace shop {

// Keeps the offsets in a table of the service's own, shop_read.offsets, in the transaction of the
// batch that they stand for.
class ShopOffsets : public lockstep::state::OffsetProvider {
 public:
  absl::StatusOr<std::optional<lockstep::state::GroupOffset>> Load(
      lockstep::postgres::Transaction* transaction, const lockstep::ConsumerGroup& group) override;
  absl::Status Save(lockstep::postgres::Transaction* transaction,
                    const lockstep::state::LaneOffset& offset) override;
  absl::Status Reset(lockstep::postgres::Transaction* transaction,
                     const lockstep::state::ResetRecord& record) override;
};

}  // namespace shop
