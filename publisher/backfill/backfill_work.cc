// What the publisher that works on a backfill asks and writes.

#include <utility>

#include "platform/status.h"
#include "publisher/backfill/backfill_store.h"

namespace lockstep::publisher {
namespace {

using nlohmann::ordered_json;
using postgres::Result;
using postgres::Row;

// $1 outboxes, $2 token, $3 owner, $4 ttl. A time beyond any lease or wait was written by a clock
// that has gone back since.
constexpr char kClaim[] = R"sql(
WITH next AS (
  SELECT id FROM lockstep.backfills
  WHERE outbox = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) AS name) AND state = 'running'
    AND (lease_until IS NULL OR lease_token = $2::uuid
         OR lease_until NOT BETWEEN statement_timestamp() AND statement_timestamp() + interval '10 min')
    AND (retry_at IS NULL
         OR retry_at NOT BETWEEN statement_timestamp() AND statement_timestamp() + interval '10 min')
  ORDER BY progress_at NULLS FIRST, created_at LIMIT 1
  FOR UPDATE SKIP LOCKED)
UPDATE lockstep.backfills b
SET lease_token = $2::uuid, lease_owner = $3, lease_until = statement_timestamp() + $4::bigint * interval '1 ms'
FROM next WHERE b.id = next.id
RETURNING {columns}, b.descriptors)sql";

// What a worker writes: $1 id, $2 its token, then values.
constexpr char kBegin[] = R"sql(
UPDATE lockstep.backfills
SET begun_at = coalesce(begun_at, statement_timestamp()), start_lsn = $3::pg_lsn,
    highest = CASE WHEN $4::text IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text($4::jsonb)) END,
    rows_expected = $5::bigint
WHERE id = $1::uuid AND lease_token = $2::uuid)sql";

constexpr char kAdvance[] = R"sql(
UPDATE lockstep.backfills
SET cursor = $3::text[], rows_done = rows_done + $4::bigint, progress_at = statement_timestamp(),
    last_events = CASE WHEN $6::text[] = '{}' THEN last_events ELSE $6::text[]::uuid[] END,
    failures = 0, last_error = NULL, retry_at = NULL,
    lease_until = statement_timestamp() + $5::bigint * interval '1 ms'
WHERE id = $1::uuid AND lease_token = $2::uuid)sql";

constexpr char kRenew[] = R"sql(
UPDATE lockstep.backfills SET lease_until = statement_timestamp() + $3::bigint * interval '1 ms'
WHERE id = $1::uuid AND lease_token = $2::uuid)sql";

constexpr char kRelease[] = R"sql(
UPDATE lockstep.backfills
SET progress_at = statement_timestamp(), lease_token = NULL, lease_owner = NULL, lease_until = NULL
WHERE id = $1::uuid AND lease_token = $2::uuid)sql";

constexpr char kRetry[] = R"sql(
UPDATE lockstep.backfills
SET failures = failures + 1, last_error = $3, retry_at = statement_timestamp() + $4::bigint * interval '1 ms',
    progress_at = statement_timestamp(), lease_token = NULL, lease_owner = NULL, lease_until = NULL
WHERE id = $1::uuid AND lease_token = $2::uuid)sql";

// $3 state, $4 the error or empty, $5 actor
constexpr char kEnd[] = R"sql(
WITH ended AS (
  UPDATE lockstep.backfills
  SET state = $3, ended_at = CASE WHEN $3 = 'done' THEN statement_timestamp() END, last_error = nullif($4, ''),
      failures = 0, retry_at = NULL, lease_token = NULL, lease_owner = NULL, lease_until = NULL
  WHERE id = $1::uuid AND lease_token = $2::uuid
  RETURNING id, outbox, name, rows_done),
audited AS (
  INSERT INTO lockstep.outbox_audit (actor, action, outbox, note, detail)
  SELECT $5, 'backfill ' || $3, lockstep.outbox_name(outbox), nullif($4, ''),
         jsonb_build_object('backfill', id, 'name', name, 'rows', rows_done)
  FROM ended),
cleaned AS (
  DELETE FROM lockstep.backfill_keys k USING ended WHERE k.backfill = ended.id AND $3 = 'done')
SELECT id FROM ended)sql";

constexpr char kRepairItems[] = R"sql(
SELECT n, array_to_json(key)::text AS key, ghost::text AS ghost FROM lockstep.backfill_keys
WHERE backfill = $1::uuid AND n > $2::bigint ORDER BY n LIMIT $3::int)sql";

constexpr char kLsn[] = "SELECT pg_current_wal_insert_lsn()::text AS lsn";

// The control file has a new timeline only after the next checkpoint; the WAL has it at once.
constexpr char kWriter[] = R"sql(
SELECT system_identifier::text AS cluster, left(pg_walfile_name(pg_current_wal_lsn()), 8) AS timeline
FROM pg_control_system())sql";

absl::StatusOr<Ghost> GhostOf(const ordered_json& json, KeyTexts key) {
  Ghost ghost;
  try {
    ghost.aggregate_id = json.at("aggregate_id").get<std::string>();
    if (json.contains("tenant_id") && !json["tenant_id"].is_null()) {
      ghost.tenant_id = json["tenant_id"].get<std::string>();
    }
    ghost.version = json.at("version").get<int64_t>();
    ghost.payload = json.at("payload");
  } catch (const ordered_json::exception& error) {
    return InvalidArgument("a ghost of the repair can't be read: {}", error.what());
  }
  ghost.key = std::move(key);
  return ghost;
}

}  // namespace

absl::StatusOr<std::optional<BackfillRecord>> BackfillStore::Claim(
    const std::vector<std::string>& outboxes, const std::string& token, const std::string& owner,
    Millis ttl) {
  ASSIGN_OR_RETURN(const Result claimed,
                   connection_.Execute(WithRecordColumns(kClaim), outboxes, token, owner, ttl));
  if (claimed.empty()) return std::nullopt;
  return ReadRecord(claimed[0]);
}

absl::StatusOr<bool> BackfillStore::Begin(const std::string& id, const std::string& token,
                                          const std::string& start_lsn,
                                          const std::optional<KeyTexts>& highest,
                                          int64_t expected) {
  const std::optional<std::string> key =
      highest ? std::optional(ordered_json(*highest).dump()) : std::nullopt;
  ASSIGN_OR_RETURN(const int64_t rows,
                   connection_.Affected(kBegin, id, token, start_lsn, key, expected));
  return rows > 0;
}

absl::StatusOr<bool> BackfillStore::Advance(const std::string& id, const std::string& token,
                                            const KeyTexts& cursor, int64_t rows, Millis ttl,
                                            const std::vector<std::string>& last) {
  ASSIGN_OR_RETURN(const int64_t changed,
                   connection_.Affected(kAdvance, id, token, cursor, rows, ttl, last));
  return changed > 0;
}

absl::StatusOr<bool> BackfillStore::Renew(const std::string& id, const std::string& token,
                                          Millis ttl) {
  ASSIGN_OR_RETURN(const int64_t changed, connection_.Affected(kRenew, id, token, ttl));
  return changed > 0;
}

absl::Status BackfillStore::Release(const std::string& id, const std::string& token) {
  return connection_.Run(kRelease, id, token);
}

absl::StatusOr<bool> BackfillStore::Retry(const std::string& id, const std::string& token,
                                          const std::string& error, Millis delay) {
  ASSIGN_OR_RETURN(const int64_t changed, connection_.Affected(kRetry, id, token, error, delay));
  return changed > 0;
}

absl::StatusOr<bool> BackfillStore::End(const std::string& id, const std::string& token,
                                        const std::string& state, const std::string& note,
                                        const std::string& actor) {
  ASSIGN_OR_RETURN(const Result ended, connection_.Execute(kEnd, id, token, state, note, actor));
  return !ended.empty();
}

absl::StatusOr<bool> BackfillStore::Fail(const std::string& id, const std::string& token,
                                         const std::string& error, const std::string& actor) {
  return End(id, token, "failed", error, actor);
}

absl::StatusOr<bool> BackfillStore::Finish(const std::string& id, const std::string& token,
                                           const std::string& actor) {
  return End(id, token, "done", "", actor);
}

absl::StatusOr<std::vector<RepairItem>> BackfillStore::RepairItems(const std::string& id,
                                                                   int64_t after, int at_most) {
  ASSIGN_OR_RETURN(const Result rows, connection_.Execute(kRepairItems, id, after, at_most));
  std::vector<RepairItem> items;
  for (const Row row : rows) {
    RepairItem& item = items.emplace_back();
    item.n = row.Int("n");
    item.key = ReadKey(row.OptionalText("key")).value_or(KeyTexts());
    if (row.IsNull("ghost")) continue;
    ASSIGN_OR_RETURN(item.ghost, GhostOf(ordered_json::parse(row.Text("ghost")), item.key));
  }
  return items;
}

absl::StatusOr<std::string> BackfillStore::CurrentLsn() {
  ASSIGN_OR_RETURN(const Result found, connection_.Execute(kLsn));
  return found[0].String("lsn");
}

absl::StatusOr<BackfillStore::Writer> BackfillStore::Lineage() {
  ASSIGN_OR_RETURN(const Result found, connection_.Execute(kWriter));
  return Writer{found[0].String("cluster"), found[0].String("timeline")};
}

}  // namespace lockstep::publisher
