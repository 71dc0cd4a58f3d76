#include "state/groups/rebuilds.h"

#include <fmt/format.h>

#include <utility>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kTryLock =
    "SELECT pg_try_advisory_lock(hashtextextended('lockstep.rebuild.' || $2 || '.' || $1, 0)) AS "
    "locked";

// Names of tables hold no line break: QualifiedName refuses it.
constexpr std::string_view kLoad = R"(
SELECT state, old_slot, new_slot, discard_slot, old_subscription, new_subscription,
       array_to_string(tables, E'\n') AS tables, seek_time, seek_snapshot, accept_missing, keep_old_ms,
       operator, reason, began_at, swapped_at, old_skip_before
  FROM {state}.rebuilds WHERE group_name = $1)";

constexpr std::string_view kInsert = R"(
INSERT INTO {state}.rebuilds
       (group_name, old_slot, new_slot, old_subscription, new_subscription, tables, seek_time,
        seek_snapshot, accept_missing, keep_old_ms, operator, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12))";

constexpr std::string_view kFilling =
    "UPDATE {state}.rebuilds SET state = 'filling' WHERE group_name = $1";
constexpr std::string_view kSwapped = R"(
UPDATE {state}.rebuilds r
   SET state = 'swapped', swapped_at = clock_timestamp(), old_skip_before = g.skip_before
  FROM {state}.consumer_groups g WHERE r.group_name = $1 AND g.group_name = $1)";
constexpr std::string_view kDiscarding =
    "UPDATE {state}.rebuilds SET state = 'discarding', discard_slot = $2 WHERE group_name = $1";
constexpr std::string_view kRemove = "DELETE FROM {state}.rebuilds WHERE group_name = $1";

constexpr std::string_view kAudit = R"(
INSERT INTO {state}.audit (group_name, action, operator, reason, new)
SELECT $1, $2, $3, $4,
       jsonb_build_object('state', state, 'old_slot', old_slot, 'new_slot', new_slot,
                          'subscription', new_subscription)
  FROM {state}.rebuilds WHERE group_name = $1)";

RebuildState ParseState(std::string_view text) {
  if (text == "filling") return RebuildState::kFilling;
  if (text == "swapped") return RebuildState::kSwapped;
  if (text == "discarding") return RebuildState::kDiscarding;
  return RebuildState::kPreparing;
}

std::optional<RebuildRow> Parse(const postgres::Result& rows) {
  if (rows.empty()) return std::nullopt;
  const postgres::Row stored = rows[0];
  RebuildRow row;
  row.state = ParseState(stored.Text("state"));
  row.old_slot = static_cast<int>(stored.Int("old_slot"));
  row.new_slot = static_cast<int>(stored.Int("new_slot"));
  row.discard_slot = static_cast<int>(stored.Int("discard_slot"));
  row.old_subscription = stored.Text("old_subscription");
  row.new_subscription = stored.Text("new_subscription");
  row.tables = SplitList(stored.Text("tables"), '\n');
  row.seek =
      SeekTarget::Stored(stored.OptionalTime("seek_time"), stored.OptionalText("seek_snapshot"));
  row.accept_missing = stored.Bool("accept_missing");
  row.keep_old = Millis(stored.Int("keep_old_ms"));
  row.operator_name = stored.Text("operator");
  row.reason = stored.Text("reason");
  row.began_at = stored.Time("began_at");
  row.swapped_at = stored.OptionalTime("swapped_at");
  row.old_skip_before = stored.OptionalTime("old_skip_before");
  return row;
}

}  // namespace

std::string_view Name(RebuildState state) {
  switch (state) {
    case RebuildState::kFilling:
      return "filling";
    case RebuildState::kSwapped:
      return "swapped";
    case RebuildState::kDiscarding:
      return "discarding";
    case RebuildState::kPreparing:
      break;
  }
  return "preparing";
}

std::string RebuildRow::Suffix(int slot) { return fmt::format("__slot{}", slot); }

Rebuilds::Rebuilds(const Schema& schema, ConsumerGroup group)
    : schema_(schema), group_(std::move(group)) {}

absl::StatusOr<bool> Rebuilds::TryLock(postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const auto locked, connection.Execute(kTryLock, group_.value(), schema_.name()));
  return locked[0].Bool("locked");
}

absl::StatusOr<std::optional<RebuildRow>> Rebuilds::Load(postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kLoad), group_.value()));
  return Parse(rows);
}

absl::StatusOr<std::optional<RebuildRow>> Rebuilds::Lock(postgres::Transaction& transaction) const {
  ASSIGN_OR_RETURN(const auto rows,
                   transaction.Execute(schema_.Sql(kLoad) + " FOR UPDATE", group_.value()));
  return Parse(rows);
}

absl::Status Rebuilds::Insert(postgres::Transaction& transaction, const RebuildRow& row) const {
  postgres::Array tables;
  for (const std::string& table : row.tables) tables.Add(table);
  return transaction
      .Execute(schema_.Sql(kInsert), group_.value(), row.old_slot, row.new_slot,
               row.old_subscription, row.new_subscription, tables, row.seek.time, row.seek.snapshot,
               row.accept_missing, static_cast<int64_t>(row.keep_old.count()), row.operator_name,
               row.reason)
      .status();
}

absl::Status Rebuilds::Run(postgres::Transaction& transaction, std::string_view sql) const {
  return transaction.Execute(schema_.Sql(sql), group_.value()).status();
}

absl::Status Rebuilds::SetFilling(postgres::Transaction& transaction) const {
  return Run(transaction, kFilling);
}
absl::Status Rebuilds::SetSwapped(postgres::Transaction& transaction) const {
  return Run(transaction, kSwapped);
}
absl::Status Rebuilds::SetDiscarding(postgres::Transaction& transaction, int slot) const {
  return transaction.Execute(schema_.Sql(kDiscarding), group_.value(), slot).status();
}
absl::Status Rebuilds::Remove(postgres::Transaction& transaction) const {
  return Run(transaction, kRemove);
}

absl::Status Rebuilds::Audit(postgres::Transaction& transaction, std::string_view action,
                             const std::string& operator_name, const std::string& reason) const {
  return transaction.Execute(schema_.Sql(kAudit), group_.value(), action, operator_name, reason)
      .status();
}

}  // namespace lockstep::state
