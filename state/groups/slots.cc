#include "state/groups/slots.h"

#include <fmt/format.h>

#include <utility>

#include "platform/status.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kNoteFirst = R"(
UPDATE {state}.slots SET first_publish_time = least(first_publish_time, $3)
 WHERE group_name = $1 AND slot = $2)";

constexpr std::string_view kNoteColumns = R"(
UPDATE {state}.slots SET columns = $3 WHERE group_name = $1 AND slot = $2 AND columns IS NULL)";

constexpr std::string_view kColumns = R"(
SELECT c AS name FROM {state}.slots, unnest(columns) c WHERE group_name = $1 AND slot = $2)";

constexpr std::string_view kNoteInbox = R"(
WITH noted AS (
  UPDATE {state}.slots SET inbox = $3
   WHERE group_name = $1 AND slot = $2 AND (inbox IS NULL OR inbox = 'followed' AND $3 = 'event')
  RETURNING inbox)
SELECT coalesce((SELECT inbox FROM noted),
                (SELECT inbox FROM {state}.slots WHERE group_name = $1 AND slot = $2)) AS inbox)";

constexpr std::string_view kGoByVersions = R"(
UPDATE {state}.slots SET inbox = 'aggregate'
 WHERE group_name = $1 AND slot = $2 AND inbox = 'followed')";

std::string_view NameOf(InboxKind kind) {
  if (kind == InboxKind::kAggregate) return "aggregate";
  return kind == InboxKind::kFollowed ? "followed" : "event";
}

constexpr std::string_view kNewest = "SELECT max(slot) FROM {state}.slots WHERE group_name = $1";

constexpr std::string_view kNewGeneration = R"(
WITH old AS (
  INSERT INTO {state}.retired_generations (generation, group_name) VALUES ($3, $1))
UPDATE {state}.slots
   SET generation = DEFAULT, first_publish_time = NULL, columns = NULL, inbox = NULL
 WHERE group_name = $1 AND slot = $2
RETURNING generation)";

constexpr std::string_view kTake = R"(
UPDATE {state}.slots SET group_name = $1 WHERE group_name = $2 AND slot = $3)";

// One may be active at a time, so the other retires first.
constexpr std::string_view kRetire = R"(
UPDATE {state}.slots
   SET state = 'retired', tables = (SELECT jsonb_object_agg(t, t || $4) FROM unnest($3::text[]) t)
 WHERE group_name = $1 AND slot = $2)";
constexpr std::string_view kActivate = R"(
WITH active AS (UPDATE {state}.slots SET state = 'active', tables = '{}'
                 WHERE group_name = $1 AND slot = $2)
UPDATE {state}.consumer_groups SET active_slot = $2 WHERE group_name = $1)";

constexpr std::string_view kRemoveSlot = R"(
WITH gone AS (
  DELETE FROM {state}.slots WHERE group_name IN ($1, $2) AND slot = $3
  RETURNING generation, group_name),
retired AS (
  INSERT INTO {state}.retired_generations (generation, group_name, served)
  SELECT generation, $1, group_name = $1 FROM gone
  ON CONFLICT DO NOTHING)
SELECT generation FROM gone)";

}  // namespace

Slots::Slots(const Schema& schema, ConsumerGroup group)
    : GroupStore(schema, std::move(group)), note_first_(schema, "slot_note_first", kNoteFirst) {}

absl::Status Slots::NoteFirst(postgres::Transaction& transaction, int slot,
                              WallTime published) const {
  return transaction.Run(note_first_, group_, slot, published);
}

absl::Status Slots::NoteColumns(postgres::Connection& connection, int slot,
                                const std::vector<std::string>& columns) const {
  return connection.Run(schema_.Sql(kNoteColumns), group_, slot, columns);
}

absl::StatusOr<std::vector<std::string>> Slots::Columns(postgres::Connection& connection,
                                                        int slot) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kColumns), group_, slot));
  std::vector<std::string> names;
  for (const postgres::Row row : rows) names.push_back(row.String("name"));
  return names;
}

absl::StatusOr<bool> Slots::NoteInbox(postgres::Connection& connection, int slot,
                                      InboxKind kind) const {
  // Of two first calls at once, the one that waited reads what the other wrote: so it asks again.
  for (int tries = 0; tries < 2; ++tries) {
    ASSIGN_OR_RETURN(const auto rows,
                     connection.Execute(schema_.Sql(kNoteInbox), group_, slot, NameOf(kind)));
    if (!rows[0].IsNull("inbox")) return rows[0].Text("inbox") == "aggregate";
  }
  return NotFound("group '{}' has no slot {} any longer", group_.value(), slot);
}

absl::Status Slots::GoByVersions(postgres::Transaction& transaction, int slot) const {
  return transaction.Run(schema_.Sql(kGoByVersions), group_, slot);
}

absl::StatusOr<int> Slots::Newest(postgres::Connection& connection) const {
  return connection.Number(schema_.Sql(kNewest), group_);
}

absl::StatusOr<int> Slots::NewGeneration(postgres::Transaction& transaction, int slot,
                                         int retired) const {
  return transaction.Number(schema_.Sql(kNewGeneration), group_, slot, retired);
}

absl::Status Slots::Take(postgres::Transaction& transaction, const ConsumerGroup& from,
                         int slot) const {
  return transaction.Run(schema_.Sql(kTake), group_, from, slot);
}

absl::Status Slots::Activate(postgres::Transaction& transaction, int slot, int instead_of,
                             const std::vector<std::string>& tables,
                             const std::string& suffix) const {
  RETURN_IF_ERROR(transaction.Run(schema_.Sql(kRetire), group_, instead_of, tables, suffix));
  return transaction.Run(schema_.Sql(kActivate), group_, slot);
}

absl::StatusOr<std::optional<int>> Slots::Remove(postgres::Transaction& transaction,
                                                 const ConsumerGroup& shadow, int slot) const {
  ASSIGN_OR_RETURN(const auto rows,
                   transaction.Execute(schema_.Sql(kRemoveSlot), group_, shadow, slot));
  if (rows.empty()) return std::optional<int>();
  return std::optional(static_cast<int>(rows[0].Int("generation")));
}

}  // namespace lockstep::state
