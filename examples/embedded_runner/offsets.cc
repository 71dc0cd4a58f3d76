#include "offsets.h"

#include "postgres/connection.h"

namespace shop {
namespace {

using lockstep::state::GroupOffset;
using lockstep::postgres::Transaction;

// The least of the lanes'. A process that is gone holds it back, which is only ever too careful.
constexpr char kLoad[] =
    "SELECT * FROM shop_read.offsets WHERE consumer_group = $1 "
    "ORDER BY publish_time, message_id LIMIT 1";

// Forward only.
constexpr char kSave[] =
    "INSERT INTO shop_read.offsets AS o "
    "  (consumer_group, instance, lane, subscription, publish_time, message_id, epoch) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7) "
    "ON CONFLICT (consumer_group, instance, lane) DO UPDATE SET "
    "  subscription = excluded.subscription, publish_time = excluded.publish_time, "
    "  message_id = excluded.message_id, epoch = excluded.epoch, updated_at = now() "
    "WHERE (o.publish_time, o.message_id) < (excluded.publish_time, excluded.message_id)";

constexpr char kForget[] = "DELETE FROM shop_read.offsets WHERE consumer_group = $1";

}  // namespace

absl::StatusOr<std::optional<GroupOffset>> ShopOffsets::Load(Transaction* transaction,
                                                             const lockstep::ConsumerGroup& group) {
  const auto rows = transaction->Execute(kLoad, group);
  if (!rows.ok()) return rows.status();
  if (rows->empty()) return std::nullopt;
  const lockstep::postgres::Row row = (*rows)[0];
  return GroupOffset{
      .subscription = row.String("subscription"),
      .position = {.publish_time = row.Time("publish_time"),
                   .message_id = lockstep::MessageId(row.String("message_id"))},
      .epoch = row.Int("epoch"),
      .updated_at = row.Time("updated_at"),
      .updated_by = row.String("instance"),
  };
}

absl::Status ShopOffsets::Save(Transaction* transaction,
                               const lockstep::state::LaneOffset& offset) {
  return transaction
      ->Execute(kSave, offset.group, offset.instance, offset.lane, offset.subscription,
                offset.position.publish_time, offset.position.message_id, offset.epoch)
      .status();
}

absl::Status ShopOffsets::Reset(Transaction* transaction,
                                const lockstep::state::ResetRecord& record) {
  const auto forgotten = transaction->Execute(kForget, record.group);
  if (!forgotten.ok() || !record.to.has_value()) return forgotten.status();
  return Save(transaction, {.group = record.group,
                            .instance = record.operator_name,
                            .subscription = record.subscription,
                            .position = *record.to,
                            .epoch = record.epoch});
}

}  // namespace shop
