#include "state/events/key_states.h"

#include "platform/status.h"

namespace lockstep::state {
namespace {

constexpr std::string_view kLock = R"(
SELECT aggregate_key, settled_version, last_event, blocked_version, snapshot_version, parked, open
  FROM {state}.key_state
 WHERE generation = $1 AND aggregate_key = ANY ($2::text[])
 ORDER BY aggregate_key
   FOR UPDATE)";

constexpr std::string_view kRead = R"(
SELECT aggregate_key, settled_version, last_event, blocked_version, snapshot_version, parked, open
  FROM {state}.key_state
 WHERE generation = $1 AND aggregate_key = ANY ($2::text[]))";

constexpr std::string_view kMake = R"(
INSERT INTO {state}.key_state AS k (generation, aggregate_key, snapshot_version)
SELECT $1::int, key, snapshot FROM unnest($2::text[], $3::bigint[]) AS s (key, snapshot)
ON CONFLICT (generation, aggregate_key) DO UPDATE SET parked = k.parked
RETURNING aggregate_key, settled_version, last_event, blocked_version, snapshot_version, parked,
          open)";

constexpr std::string_view kSave = R"(
INSERT INTO {state}.key_state AS k
       (generation, aggregate_key, settled_version, last_event, blocked_version, snapshot_version,
        parked, open)
SELECT $1::int, key, settled, last, blocked, snapshot, parked, open
  FROM unnest($2::text[], $3::bigint[], $4::uuid[], $5::bigint[], $6::bigint[], $7::int[],
              $8::boolean[]) AS s (key, settled, last, blocked, snapshot, parked, open)
ON CONFLICT (generation, aggregate_key) DO UPDATE
   SET settled_version = EXCLUDED.settled_version,
       last_event = EXCLUDED.last_event,
       blocked_version = EXCLUDED.blocked_version,
       snapshot_version = EXCLUDED.snapshot_version,
       parked = EXCLUDED.parked,
       open = EXCLUDED.open,
       updated_at = CASE WHEN (k.settled_version, k.last_event)
                              IS DISTINCT FROM (EXCLUDED.settled_version, EXCLUDED.last_event)
                         THEN now() ELSE k.updated_at END)";

constexpr std::string_view kForget = R"(
DELETE FROM {state}.key_state WHERE generation = $1 AND aggregate_key = ANY ($2::text[]))";

constexpr std::string_view kForgetVersions = R"(
WITH gone AS (
  DELETE FROM {state}.key_state
   WHERE generation = $1 AND settled_version IS NOT NULL AND blocked_version IS NULL AND parked = 0
     AND snapshot_version IS NULL)
UPDATE {state}.key_state
   SET settled_version = NULL, last_event = NULL, previous_version = NULL, open = false,
       updated_at = now()
 WHERE generation = $1 AND settled_version IS NOT NULL
   AND (blocked_version IS NOT NULL OR parked > 0 OR snapshot_version IS NOT NULL))";

constexpr std::string_view kReleasable = R"(
SELECT k.aggregate_key
  FROM {state}.key_state k
 WHERE k.generation = $1 AND k.parked > 0
   AND EXISTS (SELECT 1 FROM {state}.parked p
                WHERE p.generation = k.generation AND p.aggregate_key = k.aggregate_key
                  AND (k.blocked_version IS NULL OR p.version < k.blocked_version)
                  AND (NOT $3 OR k.settled_version IS NULL OR p.version - 1 <= k.settled_version))
 ORDER BY k.aggregate_key
 LIMIT $2)";

constexpr std::string_view kSettled = R"(
SELECT s.follows_versions AS follows, k.settled_version AS settled
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS q (group_name, key, n)
  LEFT JOIN {state}.active_slots s ON s.group_name = q.group_name
  LEFT JOIN {state}.key_state k ON k.generation = s.generation AND k.aggregate_key = q.key
 ORDER BY q.n)";

constexpr std::string_view kOpen = R"(
UPDATE {state}.key_state SET open = true WHERE generation = $1 AND settled_version IS NOT NULL)";

constexpr std::string_view kCloseGaps = R"(
UPDATE {state}.key_state k
   SET settled_version = w.first - 1, last_event = NULL, previous_version = NULL
  FROM (SELECT aggregate_key, min(version) AS first FROM {state}.parked
         WHERE generation = $1 GROUP BY aggregate_key) w
 WHERE k.generation = $1 AND k.aggregate_key = w.aggregate_key
   AND k.blocked_version IS NULL AND k.settled_version IS NOT NULL)";

constexpr std::string_view kSkipTo = R"(
WITH was AS (
  SELECT settled_version FROM {state}.key_state WHERE generation = $2 AND aggregate_key = $3),
skipped AS (
  UPDATE {state}.key_state
     SET settled_version = $4::bigint - 1, last_event = NULL, previous_version = NULL, open = false,
         updated_at = now()
   WHERE generation = $2 AND aggregate_key = $3)
INSERT INTO {state}.audit (group_name, action, operator, reason, old, new)
SELECT $1, 'parked.skip', $5, $6,
       jsonb_build_object('aggregate', $3::text, 'settled_version', settled_version),
       jsonb_build_object('aggregate', $3::text, 'settled_version', $4::bigint - 1)
  FROM was)";

constexpr std::string_view kCountWaiting = R"(
SELECT count(*) AS keys, coalesce(sum(parked), 0) AS events
  FROM (SELECT k.parked FROM {state}.key_state k
          JOIN {state}.active_slots s ON s.generation = k.generation
         WHERE s.group_name = $1 AND (k.parked > 0 OR k.blocked_version IS NOT NULL)
         LIMIT 100000) waiting)";

constexpr std::string_view kListWaiting = R"(
SELECT k.aggregate_key, k.parked, coalesce(k.blocked_version, k.settled_version + 1) AS waits_for,
       p.version AS first_parked, p.event_id AS first_event, coalesce(d.dead_at, p.parked_at, k.updated_at) AS since,
       d.id AS dead_letter, d.code, d.reason
  FROM {state}.key_state k
  JOIN {state}.active_slots s ON s.generation = k.generation
  LEFT JOIN LATERAL (SELECT version, event_id, parked_at FROM {state}.parked
                      WHERE generation = k.generation AND aggregate_key = k.aggregate_key
                      ORDER BY version LIMIT 1) p ON true
  LEFT JOIN LATERAL (SELECT id, code, reason, dead_at FROM {state}.dead_letters
                      WHERE generation = k.generation AND aggregate_key = k.aggregate_key
                        AND version = k.blocked_version AND blocks
                        AND state IN ('dead', 'quarantined')
                      LIMIT 1) d ON true
 WHERE s.group_name = $1 AND (k.parked > 0 OR k.blocked_version IS NOT NULL)
   AND ($3 = '' OR k.aggregate_key = $3)
 ORDER BY k.aggregate_key
 LIMIT $2)";

// Where versions are not followed one by one, what is stored comes before what is dead.
constexpr std::string_view kVersionLag = R"(
SELECT coalesce(max(greatest(p.version, k.blocked_version)
                    - coalesce(k.settled_version, k.blocked_version - 1)), 0)
  FROM (SELECT k.generation, k.aggregate_key, k.settled_version, k.blocked_version
          FROM {state}.key_state k
          JOIN {state}.active_slots s ON s.generation = k.generation
         WHERE s.group_name = $1 AND (k.parked > 0 OR k.blocked_version IS NOT NULL)
         LIMIT 1000) k
  LEFT JOIN LATERAL (SELECT version FROM {state}.parked
                      WHERE generation = k.generation AND aggregate_key = k.aggregate_key
                      ORDER BY version DESC LIMIT 1) p ON true)";

}  // namespace

KeyRows ReadKeyRows(const postgres::Result& rows) {
  KeyRows keys;
  for (const postgres::Row row : rows) {
    if (row.IsNull("aggregate_key")) break;
    keys[row.String("aggregate_key")] = {.exists = true,
                                         .settled = row.OptionalInt("settled_version"),
                                         .last_event = row.String("last_event"),
                                         .blocked = row.OptionalInt("blocked_version"),
                                         .snapshot = row.OptionalInt("snapshot_version"),
                                         .open = row.Bool("open"),
                                         .parked = static_cast<int>(row.Int("parked"))};
  }
  return keys;
}

KeyStates::KeyStates(const Schema& schema)
    : schema_(schema),
      lock_(schema, "key_lock", kLock),
      make_(schema, "key_make", kMake),
      save_(schema, "key_save", kSave),
      forget_(schema, "key_forget", kForget) {}

absl::StatusOr<KeyRows> KeyStates::Lock(postgres::Transaction& transaction, int generation,
                                        const std::vector<std::string>& keys) const {
  ASSIGN_OR_RETURN(const postgres::Result rows, transaction.Execute(lock_, generation, keys));
  return ReadKeyRows(rows);
}

absl::StatusOr<KeyRows> KeyStates::Read(postgres::Connection& connection, int generation,
                                        const std::vector<std::string>& keys) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kRead), generation, keys));
  return ReadKeyRows(rows);
}

absl::StatusOr<KeyRows> KeyStates::Make(
    postgres::Transaction& transaction, int generation,
    const std::vector<std::pair<std::string, std::optional<int64_t>>>& keys) const {
  postgres::Array names, snapshots;
  for (const auto& [name, snapshot] : keys) {
    names.Add(name);
    snapshots.Add(snapshot);
  }
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   transaction.Execute(make_, generation, names, snapshots));
  return ReadKeyRows(rows);
}

absl::Status KeyStates::Save(postgres::Transaction& transaction, int generation,
                             const KeyRows& rows) const {
  postgres::Array keys, settled, last, blocked, snapshot, parked, open, empty;
  for (const auto& [key, row] : rows) {
    if (!row.settled && !row.blocked && !row.snapshot && row.parked == 0) {
      if (row.exists) empty.Add(key);
      continue;
    }
    keys.Add(key);
    settled.Add(row.settled);
    last.AddIfAny(row.last_event);
    blocked.Add(row.blocked);
    snapshot.Add(row.snapshot);
    parked.Add(row.parked);
    open.Add(row.open);
  }
  if (empty.size() > 0) RETURN_IF_ERROR(transaction.Run(forget_, generation, empty));
  if (keys.size() == 0) return absl::OkStatus();
  return transaction.Run(save_, generation, keys, settled, last, blocked, snapshot, parked, open);
}

absl::Status KeyStates::ForgetVersions(postgres::Connection& connection, int generation) const {
  return connection.Run(schema_.Sql(kForgetVersions), generation);
}

absl::StatusOr<std::vector<std::string>> KeyStates::Releasable(postgres::Connection& connection,
                                                               int generation, int limit,
                                                               bool gaps) const {
  ASSIGN_OR_RETURN(const auto rows,
                   connection.Execute(schema_.Sql(kReleasable), generation, limit, gaps));
  std::vector<std::string> keys;
  for (const postgres::Row row : rows) keys.push_back(row.String("aggregate_key"));
  return keys;
}

absl::StatusOr<postgres::Result> KeyStates::Settled(postgres::Connection& connection,
                                                    const std::vector<Question>& questions) const {
  postgres::Array groups, keys;
  for (const Question& question : questions) {
    groups.Add(question.group);
    keys.Add(envelope::AggregateKey(question.aggregate));
  }
  return connection.Execute(schema_.Sql(kSettled), groups, keys);
}

absl::Status KeyStates::SkipGaps(postgres::Transaction& transaction, int generation) const {
  RETURN_IF_ERROR(transaction.Run(schema_.Sql(kOpen), generation));
  return transaction.Run(schema_.Sql(kCloseGaps), generation);
}

absl::StatusOr<KeyStates::Waiting> KeyStates::CountWaiting(postgres::Connection& connection,
                                                           const ConsumerGroup& group) const {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kCountWaiting), group));
  return Waiting{.keys = rows[0].Int("keys"), .events = rows[0].Int("events")};
}

absl::Status KeyStates::SkipTo(postgres::Transaction& transaction, const ConsumerGroup& group,
                               int generation, const GapSkip& skip) const {
  return transaction.Run(schema_.Sql(kSkipTo), group, generation, skip.aggregate_key, skip.to,
                         skip.operator_name, skip.reason);
}

absl::StatusOr<int64_t> KeyStates::VersionLag(postgres::Connection& connection,
                                              const ConsumerGroup& group) const {
  return connection.Number(schema_.Sql(kVersionLag), group);
}

absl::StatusOr<postgres::Result> KeyStates::ListWaiting(postgres::Connection& connection,
                                                        const ConsumerGroup& group, int limit,
                                                        const std::string& key) const {
  return connection.Execute(schema_.Sql(kListWaiting), group, limit, key);
}

}  // namespace lockstep::state
