#pragma once

#include "offsets/offset_provider.h"

namespace shop {

// Keeps the offsets in a table of the service's own, shop_read.offsets, in the transaction of the
// batch that they stand for.
class ShopOffsets : public lockstep::offsets::OffsetProvider {
 public:
  absl::StatusOr<std::optional<lockstep::offsets::GroupOffset>> Load(
      lockstep::postgres::Transaction* transaction, const lockstep::ConsumerGroup& group) override;
  absl::Status Save(lockstep::postgres::Transaction* transaction,
                    const lockstep::offsets::LaneOffset& offset) override;
  absl::Status Reset(lockstep::postgres::Transaction* transaction,
                     const lockstep::offsets::ResetRecord& record) override;
};

}  // namespace shop
