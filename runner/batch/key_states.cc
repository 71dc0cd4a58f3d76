#include "runner/batch/key_states.h"

#include <string_view>

#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::runner {
namespace {

constexpr std::string_view kLock = R"(
SELECT aggregate_key, settled_version, blocked_version, parked, open
  FROM {state}.key_state
 WHERE generation = $1 AND aggregate_key = ANY ($2::text[])
 ORDER BY aggregate_key
   FOR UPDATE)";

constexpr std::string_view kMake = R"(
INSERT INTO {state}.key_state AS k (generation, aggregate_key)
SELECT $1::int, key FROM unnest($2::text[]) AS key
ON CONFLICT (generation, aggregate_key) DO UPDATE SET updated_at = now()
RETURNING aggregate_key, settled_version, blocked_version, parked, open)";

constexpr std::string_view kSave = R"(
INSERT INTO {state}.key_state AS k
       (generation, aggregate_key, settled_version, blocked_version, parked, open)
SELECT $1::int, key, settled, blocked, parked, open
  FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::int[], $6::boolean[])
       AS s (key, settled, blocked, parked, open)
ON CONFLICT (generation, aggregate_key) DO UPDATE
   SET settled_version = EXCLUDED.settled_version,
       blocked_version = EXCLUDED.blocked_version,
       parked = EXCLUDED.parked,
       open = EXCLUDED.open,
       updated_at = now())";

constexpr std::string_view kForget = R"(
DELETE FROM {state}.key_state WHERE generation = $1 AND aggregate_key = ANY ($2::text[]))";

constexpr std::string_view kForgetVersions = R"(
WITH gone AS (
  DELETE FROM {state}.key_state
   WHERE generation = $1 AND settled_version IS NOT NULL AND blocked_version IS NULL AND parked = 0)
UPDATE {state}.key_state
   SET settled_version = NULL, previous_version = NULL, open = false, updated_at = now()
 WHERE generation = $1 AND settled_version IS NOT NULL
   AND (blocked_version IS NOT NULL OR parked > 0))";

constexpr std::string_view kReleasable = R"(
SELECT k.aggregate_key
  FROM {state}.key_state k
 WHERE k.generation = $1 AND k.parked > 0
   AND EXISTS (SELECT 1 FROM {state}.parked p
                WHERE p.generation = k.generation AND p.aggregate_key = k.aggregate_key
                  AND (k.blocked_version IS NULL OR p.version < k.blocked_version)
                  AND (k.settled_version IS NULL OR p.version - 1 <= k.settled_version))
 ORDER BY k.aggregate_key
 LIMIT $2)";

std::optional<int64_t> OptionalInt(const postgres::Result& rows, int row, int column) {
  if (rows.IsNull(row, column)) return std::nullopt;
  return rows.Int(row, column);
}

void AddOptional(postgres::Array& array, const std::optional<int64_t>& value) {
  if (value) {
    array.Add(*value);
  } else {
    array.AddNull();
  }
}

absl::StatusOr<KeyRows> Rows(postgres::Transaction& transaction,
                             const postgres::Statement& statement, int generation,
                             const std::vector<std::string>& keys) {
  postgres::Array array;
  for (const std::string& key : keys) array.Add(key);
  ASSIGN_OR_RETURN(const postgres::Result rows, transaction.Execute(statement, generation, array));
  return ReadKeyRows(rows, 0);
}

}  // namespace

KeyRows ReadKeyRows(const postgres::Result& rows, int column) {
  KeyRows keys;
  for (int i = 0; i < rows.rows() && !rows.IsNull(i, column); ++i) {
    keys[std::string(rows.Text(i, column))] = {.exists = true,
                                               .settled = OptionalInt(rows, i, column + 1),
                                               .blocked = OptionalInt(rows, i, column + 2),
                                               .open = rows.Bool(i, column + 4),
                                               .parked = static_cast<int>(rows.Int(i, column + 3))};
  }
  return keys;
}

KeyStates::KeyStates(const offsets::StateSchema& schema)
    : lock_(schema, "key_lock", kLock),
      make_(schema, "key_make", kMake),
      save_(schema, "key_save", kSave),
      forget_(schema, "key_forget", kForget),
      forget_versions_(schema, "key_forget_versions", kForgetVersions),
      releasable_(schema, "key_releasable", kReleasable) {}

absl::StatusOr<KeyRows> KeyStates::Lock(postgres::Transaction& transaction, int generation,
                                        const std::vector<std::string>& keys) const {
  return Rows(transaction, lock_, generation, keys);
}

absl::StatusOr<KeyRows> KeyStates::Make(postgres::Transaction& transaction, int generation,
                                        const std::vector<std::string>& keys) const {
  return Rows(transaction, make_, generation, keys);
}

absl::Status KeyStates::Save(postgres::Transaction& transaction, int generation,
                             const KeyRows& rows) const {
  postgres::Array keys, settled, blocked, parked, open, empty;
  for (const auto& [key, row] : rows) {
    if (!row.settled && !row.blocked && row.parked == 0) {
      if (row.exists) empty.Add(key);
      continue;
    }
    keys.Add(key);
    AddOptional(settled, row.settled);
    AddOptional(blocked, row.blocked);
    parked.Add(static_cast<int64_t>(row.parked));
    open.AddPlain(row.open ? "true" : "false");
  }
  if (empty.size() > 0) {
    RETURN_IF_ERROR(transaction.Execute(forget_, generation, empty).status());
  }
  if (keys.size() == 0) return absl::OkStatus();
  return transaction.Execute(save_, generation, keys, settled, blocked, parked, open).status();
}

absl::Status KeyStates::ForgetVersions(postgres::Connection& connection, int generation) const {
  return connection.Execute(forget_versions_, generation).status();
}

absl::StatusOr<std::vector<std::string>> KeyStates::Releasable(postgres::Connection& connection,
                                                               int generation, int limit) const {
  ASSIGN_OR_RETURN(const postgres::Result rows, connection.Execute(releasable_, generation, limit));
  std::vector<std::string> keys;
  for (int i = 0; i < rows.rows(); ++i) keys.emplace_back(rows.Text(i, 0));
  return keys;
}

}  // namespace lockstep::runner
