#include "state/groups/rebuilds.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::state {
namespace {

// The server takes it from a process that was stopped; one that asks its user may take a while.
constexpr std::string_view kTryLock = R"(
SELECT locked, CASE WHEN locked THEN set_config('idle_session_timeout', '5min', false) END
  FROM pg_try_advisory_lock(hashtextextended('lockstep.rebuild.' || $2 || '.' || $1, 0))
    AS locked)";

// Names of tables hold no line break: QualifiedName refuses it.
constexpr std::string_view kLoadRebuild = R"(
SELECT state, old_slot, new_slot, discard_slot, old_subscription, new_subscription,
       array_to_string(tables, E'\n') AS tables, mapping, seek_time, seek_snapshot,
       (SELECT string_agg(value || ' ' || key, E'\n') FROM jsonb_each_text(backfills)) AS backfills,
       new_snapshots, accept_missing, keep_old_ms, operator, reason, began_at, swapped_at,
       old_skip_before
  FROM {state}.rebuilds WHERE group_name = $1)";

constexpr std::string_view kInsert = R"(
INSERT INTO {state}.rebuilds
       (group_name, old_slot, new_slot, old_subscription, new_subscription, tables, seek_time,
        seek_snapshot, accept_missing, keep_old_ms, operator, reason, backfills, new_snapshots,
        mapping)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
        (SELECT jsonb_object_agg(name, id) FROM unnest($13::text[], $14::text[]) AS b (name, id)),
        nullif($15, ''), $16))";

constexpr std::string_view kFilling = R"(
WITH filling AS (
  UPDATE {state}.rebuilds SET state = 'filling' WHERE group_name = $1),
shadow AS (
  INSERT INTO {state}.consumer_groups
         (group_name, active_slot, seek_kind, seek_time, seek_snapshot, seek_state, skip_before,
          updated_by)
  VALUES ($2, $3, $5, $6, $7, 'wanted', $6, $8) RETURNING group_name)
INSERT INTO {state}.slots (group_name, slot, subscription, state, tables)
SELECT group_name, $3, $4, 'shadow',
       (SELECT jsonb_object_agg(t, t || $10) FROM unnest($9::text[]) t) FROM shadow)";
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
                          'subscription', new_subscription, 'backfills', backfills)
  FROM {state}.rebuilds WHERE group_name = $1)";

// In the order of the enum.
constexpr std::string_view kStates[] = {"preparing", "filling", "swapped", "discarding"};

RebuildState ParseState(std::string_view text) {
  const auto* const found = std::ranges::find(kStates, text);
  return found == std::end(kStates) ? RebuildState::kPreparing
                                    : static_cast<RebuildState>(found - std::begin(kStates));
}

// Lines of "id name".
std::map<std::string, std::string> ParseBackfills(std::string_view text) {
  std::map<std::string, std::string> ids;
  for (const std::string& line : SplitList(text, '\n')) {
    const size_t space = line.find(' ');
    ids.emplace(line.substr(space + 1), line.substr(0, space));
  }
  return ids;
}

std::optional<RebuildRow> Parse(const postgres::Result& rows) {
  if (rows.empty()) return std::nullopt;
  const postgres::Row stored = rows[0];
  return RebuildRow{.state = ParseState(stored.Text("state")),
                    .old_slot = static_cast<int>(stored.Int("old_slot")),
                    .new_slot = static_cast<int>(stored.Int("new_slot")),
                    .discard_slot = static_cast<int>(stored.Int("discard_slot")),
                    .old_subscription = stored.String("old_subscription"),
                    .new_subscription = stored.String("new_subscription"),
                    .tables = SplitList(stored.Text("tables"), '\n'),
                    .mapping = stored.String("mapping"),
                    .seek = SeekTarget::Stored(stored.OptionalTime("seek_time"),
                                               stored.OptionalText("seek_snapshot")),
                    .backfills = ParseBackfills(stored.Text("backfills")),
                    .new_snapshots = stored.String("new_snapshots"),
                    .accept_missing = stored.Bool("accept_missing"),
                    .keep_old = Millis(stored.Int("keep_old_ms")),
                    .operator_name = stored.String("operator"),
                    .reason = stored.String("reason"),
                    .began_at = stored.Time("began_at"),
                    .swapped_at = stored.OptionalTime("swapped_at"),
                    .old_skip_before = stored.OptionalTime("old_skip_before")};
}

}  // namespace

std::string_view Name(RebuildState state) { return kStates[static_cast<size_t>(state)]; }

std::string RebuildRow::Suffix(int slot) { return fmt::format("__slot{}", slot); }

absl::StatusOr<bool> Rebuilds::TryLock(postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const auto locked, connection.Execute(kTryLock, group_, schema_.name()));
  return locked[0].Bool("locked");
}

absl::StatusOr<std::optional<RebuildRow>> Rebuilds::Load(postgres::Connection& connection) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kLoadRebuild), group_));
  return Parse(rows);
}

absl::StatusOr<std::optional<RebuildRow>> Rebuilds::Lock(postgres::Transaction& transaction) const {
  ASSIGN_OR_RETURN(const auto rows,
                   transaction.Execute(schema_.Sql(kLoadRebuild) + " FOR UPDATE", group_));
  return Parse(rows);
}

absl::Status Rebuilds::Insert(postgres::Transaction& transaction, const RebuildRow& row) const {
  std::vector<std::string> names, ids;
  for (const auto& [name, id] : row.backfills) {
    names.push_back(name);
    ids.push_back(id);
  }
  return transaction.Run(schema_.Sql(kInsert), group_, row.old_slot, row.new_slot,
                         row.old_subscription, row.new_subscription, row.tables, row.seek.time,
                         row.seek.snapshot, row.accept_missing, row.keep_old, row.operator_name,
                         row.reason, names, ids, row.new_snapshots, row.mapping);
}

absl::Status Rebuilds::SetFilling(postgres::Transaction& transaction, const RebuildRow& row) const {
  return transaction.Run(schema_.Sql(kFilling), group_, shadow_group(), row.new_slot,
                         row.new_subscription, row.seek.kind_name(), row.seek.time,
                         row.seek.snapshot, row.operator_name, row.tables, row.shadow_suffix());
}

absl::Status Rebuilds::SetSwapped(postgres::Transaction& transaction) const {
  return transaction.Run(schema_.Sql(kSwapped), group_);
}

absl::Status Rebuilds::SetDiscarding(postgres::Transaction& transaction, int slot) const {
  return transaction.Run(schema_.Sql(kDiscarding), group_, slot);
}

absl::Status Rebuilds::Remove(postgres::Transaction& transaction) const {
  return transaction.Run(schema_.Sql(kRemove), group_);
}

absl::Status Rebuilds::Audit(postgres::Transaction& transaction, std::string_view action,
                             const std::string& operator_name, const std::string& reason) const {
  return transaction.Run(schema_.Sql(kAudit), group_, action, operator_name, reason);
}

}  // namespace lockstep::state
