#include "offsets/postgres_offset_provider.h"

#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::offsets {
namespace {

constexpr std::string_view kLoad = R"(
SELECT subscription, message_id, publish_time, epoch, lag_ms, updated_at, updated_by
  FROM {state}.group_offsets
 WHERE group_name = $1)";

constexpr std::string_view kSave = R"(
INSERT INTO {state}.offsets AS o
       (group_name, instance, lane, subscription, message_id, publish_time, epoch, lag_ms,
        updated_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $2)
ON CONFLICT (group_name, instance, lane) DO UPDATE
   SET subscription = EXCLUDED.subscription,
       message_id = EXCLUDED.message_id,
       publish_time = EXCLUDED.publish_time,
       epoch = EXCLUDED.epoch,
       lag_ms = EXCLUDED.lag_ms,
       updated_at = now(),
       updated_by = EXCLUDED.updated_by
 WHERE (o.publish_time, o.message_id COLLATE "C")
     < (EXCLUDED.publish_time, EXCLUDED.message_id COLLATE "C"))";

constexpr std::string_view kClear = R"(
WITH gone AS (DELETE FROM {state}.offsets WHERE group_name = $1
              RETURNING instance, lane, subscription, message_id, publish_time, epoch)
SELECT coalesce(jsonb_agg(to_jsonb(gone) ORDER BY instance, lane), '[]') FROM gone)";

// Not a lane of any instance: it counts until a live one has committed something.
constexpr std::string_view kPlace = R"(
INSERT INTO {state}.offsets
       (group_name, instance, lane, subscription, message_id, publish_time, epoch, updated_by)
VALUES ($1, '(reset)', 0, $2, $3, $4, $5, $6))";

constexpr std::string_view kRecord = R"(
INSERT INTO {state}.audit (group_name, action, operator, reason, old, new)
VALUES ($1, $7, $2, $3, $4::jsonb,
        jsonb_build_object('epoch', $5::bigint, 'subscription', $6::text, 'mode', $8::text,
                           'snapshot', nullif($9::text, ''),
                           'publish_time', $10::timestamptz, 'message_id', $11::text)))";

}  // namespace

PostgresOffsetProvider::PostgresOffsetProvider(const StateSchema& schema)
    : load_(schema, "offset_load", kLoad),
      save_(schema, "offset_save", kSave),
      clear_(schema, "offset_clear", kClear),
      place_(schema, "offset_place", kPlace),
      record_(schema, "offset_record", kRecord) {}

absl::StatusOr<std::optional<GroupOffset>> PostgresOffsetProvider::Load(
    postgres::Transaction* transaction, const ConsumerGroup& group) {
  ASSIGN_OR_RETURN(const postgres::Result rows, transaction->Execute(load_, group.value()));
  if (rows.empty()) return std::optional<GroupOffset>();
  return std::optional(
      GroupOffset{.subscription = std::string(rows.Text(0, 0)),
                  .position = {rows.Time(0, 2), MessageId(std::string(rows.Text(0, 1)))},
                  .epoch = rows.Int(0, 3),
                  .lag = Millis(rows.Int(0, 4)),
                  .updated_at = rows.Time(0, 5),
                  .updated_by = std::string(rows.Text(0, 6))});
}

absl::Status PostgresOffsetProvider::Save(postgres::Transaction* transaction,
                                          const LaneOffset& offset) {
  return transaction->Defer(save_, offset.group.value(), offset.instance, offset.lane,
                            offset.subscription, offset.position.message_id.value(),
                            offset.position.publish_time, offset.epoch,
                            static_cast<int64_t>(offset.lag.count()));
}

absl::Status PostgresOffsetProvider::Reset(postgres::Transaction* transaction,
                                           const ResetRecord& record) {
  ASSIGN_OR_RETURN(const postgres::Result old, transaction->Execute(clear_, record.group.value()));
  postgres::Params audit;
  audit.Add(record.group.value())
      .Add(record.operator_name)
      .Add(record.reason)
      .Add(old.Text(0, 0))
      .Add(record.epoch)
      .Add(record.subscription)
      .Add(record.action)
      .Add(record.mode)
      .Add(record.snapshot);
  if (!record.to) {
    return transaction->Execute(record_, audit.Add(nullptr).Add(nullptr)).status();
  }
  RETURN_IF_ERROR(transaction
                      ->Execute(place_, record.group.value(), record.subscription,
                                record.to->message_id.value(), record.to->publish_time,
                                record.epoch, record.operator_name)
                      .status());
  return transaction
      ->Execute(record_, audit.Add(record.to->publish_time).Add(record.to->message_id.value()))
      .status();
}

}  // namespace lockstep::offsets
