#include "state/positions/checkpoints.h"

#include <fmt/format.h>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::state {
namespace {

// It is held while Pub/Sub is asked: the server takes it from whoever is silent for longer.
constexpr std::string_view kTryLock = R"(
SELECT locked, CASE WHEN locked THEN set_config('idle_session_timeout', '30s', false) END
  FROM pg_try_advisory_lock(hashtextextended('lockstep.checkpoint.' || $2 || '.' || $1, 0))
    AS locked)";
constexpr std::string_view kUnlock = R"(
SELECT pg_advisory_unlock(hashtextextended('lockstep.checkpoint.' || $2 || '.' || $1, 0)),
       set_config('idle_session_timeout', '0', false))";

constexpr std::string_view kList = R"(
SELECT number, snapshot, subscription, epoch, taken_at, expires_at
  FROM {state}.checkpoints WHERE group_name = $1 AND epoch > 0 ORDER BY number DESC)";

constexpr std::string_view kNewest = R"(
SELECT max(number) FROM {state}.checkpoints WHERE group_name = $1)";

// Epoch 0: its number is taken, and nobody may use it yet.
constexpr std::string_view kReserve = R"(
INSERT INTO {state}.checkpoints (group_name, number, snapshot, subscription, epoch, taken_at)
VALUES ($1, $2, $3, $4, 0, now()))";

constexpr std::string_view kRecord = R"(
WITH left_behind AS (
  DELETE FROM {state}.checkpoints WHERE group_name = $1 AND epoch = 0 AND number < $2)
INSERT INTO {state}.checkpoints
       (group_name, number, snapshot, subscription, epoch, taken_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (group_name, number) DO UPDATE
   SET epoch = EXCLUDED.epoch, taken_at = EXCLUDED.taken_at, expires_at = EXCLUDED.expires_at,
       recorded_at = now())";

constexpr std::string_view kForget = R"(
DELETE FROM {state}.checkpoints WHERE group_name = $1 AND number = $2)";

constexpr std::string_view kSubscriptions = "/subscriptions/";

}  // namespace

absl::StatusOr<bool> Checkpoints::TryLock(postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const auto locked, connection.Execute(kTryLock, group_, schema_.name()));
  return locked[0].Bool("locked");
}

absl::Status Checkpoints::Unlock(postgres::Connection& connection) const {
  return connection.Run(kUnlock, group_, schema_.name());
}

absl::StatusOr<std::vector<Checkpoint>> Checkpoints::List(postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kList), group_));
  std::vector<Checkpoint> list;
  for (const postgres::Row row : rows) {
    list.push_back({.number = row.Int("number"),
                    .snapshot = row.String("snapshot"),
                    .subscription = row.String("subscription"),
                    .epoch = row.Int("epoch"),
                    .taken_at = row.Time("taken_at"),
                    .expires_at = row.OptionalTime("expires_at")});
  }
  return list;
}

absl::StatusOr<int64_t> Checkpoints::Newest(postgres::Connection& connection) const {
  return connection.Number(schema_.Sql(kNewest), group_);
}

absl::Status Checkpoints::Reserve(postgres::Connection& connection,
                                  const Checkpoint& checkpoint) const {
  return connection.Run(schema_.Sql(kReserve), group_, checkpoint.number, checkpoint.snapshot,
                        checkpoint.subscription);
}

absl::Status Checkpoints::Record(postgres::Transaction& transaction,
                                 const Checkpoint& checkpoint) const {
  return transaction.Run(schema_.Sql(kRecord), group_, checkpoint.number, checkpoint.snapshot,
                         checkpoint.subscription, checkpoint.epoch, checkpoint.taken_at,
                         checkpoint.expires_at);
}

absl::Status Checkpoints::Forget(postgres::Connection& connection, int64_t number) const {
  return connection.Run(schema_.Sql(kForget), group_, number);
}

std::string Checkpoints::SnapshotName(const std::string& subscription, int64_t number) {
  const size_t at = subscription.find(kSubscriptions);
  const std::string id = subscription.substr(at + kSubscriptions.size());
  return fmt::format("{}/snapshots/{}.cp-{}", subscription.substr(0, at), id, number);
}

std::optional<int64_t> Checkpoints::NumberOf(const std::string& snapshot,
                                             const std::string& subscription) {
  std::string prefix = SnapshotName(subscription, 0);
  prefix.pop_back();
  if (!snapshot.starts_with(prefix)) return std::nullopt;
  int64_t number = 0;
  if (!ParseWhole(std::string_view(snapshot).substr(prefix.size()), &number)) return std::nullopt;
  return number;
}

}  // namespace lockstep::state
