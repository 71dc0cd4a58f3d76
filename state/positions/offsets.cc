#include "state/positions/offsets.h"

#include "platform/status.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kOfGroup = R"(
SELECT subscription, message_id, publish_time, epoch, lag_ms, updated_at, updated_by
  FROM {state}.group_offsets
 WHERE group_name = $1)";

constexpr std::string_view kOfLanes = R"(
SELECT instance, lane, subscription, message_id, publish_time, epoch, lag_ms, updated_at, updated_by
  FROM {state}.offsets
 WHERE group_name = $1
 ORDER BY instance, lane
 LIMIT $2)";

constexpr std::string_view kOfInstance = R"(
SELECT g.epoch, g.epoch_token, o.lane, o.commits
  FROM {state}.consumer_groups g
  LEFT JOIN {state}.offsets o ON o.group_name = g.group_name AND o.instance = $2
 WHERE g.group_name = $1)";

// An older position is left where it is, and the commit counted all the same.
constexpr std::string_view kSave = R"(
INSERT INTO {state}.offsets AS o
       (group_name, instance, lane, subscription, message_id, publish_time, epoch, lag_ms,
        updated_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $2)
ON CONFLICT (group_name, instance, lane) DO UPDATE
   SET (message_id, publish_time, lag_ms, updated_at) = (
         SELECT * FROM (VALUES (o.message_id, o.publish_time, o.lag_ms, o.updated_at),
                               (EXCLUDED.message_id, EXCLUDED.publish_time, EXCLUDED.lag_ms, now())
                       ) AS p (message_id, publish_time, lag_ms, updated_at)
          ORDER BY p.publish_time DESC, p.message_id COLLATE "C" DESC, p.updated_at LIMIT 1),
       subscription = EXCLUDED.subscription,
       epoch = EXCLUDED.epoch,
       updated_by = EXCLUDED.updated_by,
       commits = o.commits + 1)";

constexpr std::string_view kClear = R"(
WITH gone AS (DELETE FROM {state}.offsets WHERE group_name = $1
              RETURNING instance, lane, subscription, message_id, publish_time, epoch)
SELECT coalesce(jsonb_agg(to_jsonb(gone) ORDER BY instance, lane), '[]') AS old FROM gone)";

// Not a lane of any instance: it counts until a live one has committed something.
constexpr std::string_view kPlace = R"(
INSERT INTO {state}.offsets
       (group_name, instance, lane, subscription, message_id, publish_time, epoch, updated_by)
VALUES ($1, '(reset)', 0, $2, $3, $4, $5, $6))";

constexpr std::string_view kRecordReset = R"(
INSERT INTO {state}.audit (group_name, action, operator, reason, old, new)
VALUES ($1, $7, $2, $3, $4::jsonb,
        jsonb_build_object('epoch', $5::bigint, 'subscription', $6::text, 'mode', $8::text,
                           'snapshot', nullif($9::text, ''),
                           'publish_time', $10::timestamptz, 'message_id', $11::text)))";

// What a reset has cleared stands in the audit; an emptied or rebuilt read model begins anew.
constexpr std::string_view kIsForward = R"(
SELECT coalesce(max(publish_time) < $2, false) AS forward
  FROM (SELECT publish_time FROM {state}.offsets WHERE group_name = $1
        UNION ALL
        SELECT (was ->> 'publish_time')::timestamptz
          FROM {state}.audit a,
               jsonb_array_elements(CASE jsonb_typeof(a.old) WHEN 'array' THEN a.old END) AS was
         WHERE a.group_name = $1 AND a.action = 'offsets.reset'
           AND a.id > coalesce((SELECT max(id) FROM {state}.audit
                                 WHERE group_name = $1 AND (new ->> 'mode' = 'empty'
                                                            OR action LIKE 'rebuild%')), 0)) p)";

constexpr std::string_view kNewestOffset =
    "SELECT max(publish_time) AS publish_time FROM {state}.offsets WHERE group_name = $1";

constexpr std::string_view kTake = R"(
UPDATE {state}.offsets o SET group_name = $1, epoch = g.epoch
  FROM {state}.consumer_groups g
 WHERE o.group_name = $2 AND g.group_name = $1)";

constexpr std::string_view kForgetAll = "DELETE FROM {state}.offsets WHERE group_name = $1";

}  // namespace

Offsets::Offsets(const Schema& schema) : schema_(schema), save_(schema, "offset_save", kSave) {}

absl::StatusOr<std::optional<GroupOffset>> Offsets::Load(postgres::Transaction* transaction,
                                                         const ConsumerGroup& group) {
  ASSIGN_OR_RETURN(const auto rows, transaction->Execute(schema_.Sql(kOfGroup), group));
  if (rows.empty()) return std::optional<GroupOffset>();
  const postgres::Row row = rows[0];
  return std::optional(
      GroupOffset{.subscription = row.String("subscription"),
                  .position = {row.Time("publish_time"), MessageId(row.String("message_id"))},
                  .epoch = row.Int("epoch"),
                  .lag = Millis(row.Int("lag_ms")),
                  .updated_at = row.Time("updated_at"),
                  .updated_by = row.String("updated_by")});
}

absl::Status Offsets::Save(postgres::Transaction* transaction, const LaneOffset& offset) {
  return transaction->Defer(save_, offset.group, offset.instance, offset.lane, offset.subscription,
                            offset.position.message_id, offset.position.publish_time, offset.epoch,
                            offset.lag);
}

absl::Status Offsets::Reset(postgres::Transaction* transaction, const ResetRecord& record) {
  ASSIGN_OR_RETURN(const auto cleared, transaction->Execute(schema_.Sql(kClear), record.group));
  std::optional<WallTime> publish_time;
  std::optional<MessageId> message_id;
  if (record.to) {
    publish_time = record.to->publish_time;
    message_id = record.to->message_id;
    RETURN_IF_ERROR(transaction->Run(schema_.Sql(kPlace), record.group, record.subscription,
                                     *message_id, *publish_time, record.epoch,
                                     record.operator_name));
  }
  return transaction->Run(schema_.Sql(kRecordReset), record.group, record.operator_name,
                          record.reason, cleared[0].Text("old"), record.epoch, record.subscription,
                          record.action, record.mode, record.snapshot, publish_time, message_id);
}

absl::StatusOr<bool> Offsets::IsForward(postgres::Transaction& transaction,
                                        const ConsumerGroup& group, WallTime time) const {
  ASSIGN_OR_RETURN(const auto rows, transaction.Execute(schema_.Sql(kIsForward), group, time));
  return rows[0].Bool("forward");
}

absl::StatusOr<std::optional<WallTime>> Offsets::Newest(postgres::Transaction& transaction,
                                                        const ConsumerGroup& group) const {
  ASSIGN_OR_RETURN(const auto rows, transaction.Execute(schema_.Sql(kNewestOffset), group));
  return rows[0].OptionalTime("publish_time");
}

absl::Status Offsets::Take(postgres::Transaction& transaction, const ConsumerGroup& group,
                           const ConsumerGroup& from) const {
  return transaction.Run(schema_.Sql(kTake), group, from);
}

absl::Status Offsets::ForgetAll(postgres::Transaction& transaction,
                                const ConsumerGroup& group) const {
  return transaction.Run(schema_.Sql(kForgetAll), group);
}

absl::StatusOr<InstanceOffsets> Offsets::OfInstance(postgres::Connection& connection,
                                                    const ConsumerGroup& group,
                                                    const std::string& instance) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kOfInstance), group, instance));
  if (rows.empty()) return InstanceOffsets();
  InstanceOffsets stored{.epoch = rows[0].Int("epoch"), .token = rows[0].String("epoch_token")};
  for (const postgres::Row row : rows) {
    if (row.IsNull("lane")) continue;
    stored.commits[static_cast<int>(row.Int("lane"))] = row.Int("commits");
  }
  return stored;
}

absl::StatusOr<postgres::Result> Offsets::OfGroup(postgres::Connection& connection,
                                                  const ConsumerGroup& group) const {
  return connection.Execute(schema_.Sql(kOfGroup), group);
}

absl::StatusOr<postgres::Result> Offsets::OfLanes(postgres::Connection& connection,
                                                  const ConsumerGroup& group,
                                                  std::optional<int> limit) const {
  return connection.Execute(schema_.Sql(kOfLanes), group, limit);
}

}  // namespace lockstep::state
