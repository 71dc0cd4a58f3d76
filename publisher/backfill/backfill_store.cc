#include "publisher/backfill/backfill_store.h"

#include <utility>

#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {
namespace {

using nlohmann::ordered_json;
using postgres::FillNames;
using postgres::Result;
using postgres::Row;

// $1 outbox, $2 name, $3 repair, $4 declaration, $5 descriptors, $6 actor, $7 reason, $8 rows
constexpr char kCreate[] = R"sql(
WITH made AS (
  INSERT INTO lockstep.backfills (outbox, name, repair, declaration, descriptors, created_by, reason, rows_expected)
  SELECT o.outbox, $2, $3::boolean, $4::jsonb, $5::bytea, $6, nullif($7, ''), $8::bigint
  FROM lockstep.outboxes o WHERE o.outbox = to_regclass($1)
  RETURNING id),
audited AS (
  INSERT INTO lockstep.outbox_audit (actor, action, outbox, note, detail)
  SELECT $6, CASE WHEN $3::boolean THEN 'backfill repair' ELSE 'backfill start' END,
         lockstep.outbox_name($1::regclass), nullif($7, ''),
         jsonb_build_object('backfill', id, 'name', $2::text, 'rows', $8::bigint)
  FROM made)
SELECT id FROM made)sql";

// $1 backfill, $2 the first place, $3 keys as JSON arrays, $4 ghosts
constexpr char kAddKeys[] = R"sql(
INSERT INTO lockstep.backfill_keys (backfill, n, key, ghost)
SELECT $1::uuid, $2::bigint + i - 1, CASE WHEN k IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(k::jsonb)) END,
       g::jsonb
FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS item (k, g, i))sql";

constexpr char kColumns[] = R"sql(
  b.id, lockstep.outbox_name(b.outbox) AS outbox, b.name, b.repair, b.state, b.created_by, b.role, b.reason,
  b.created_at, b.begun_at, b.ended_at, b.progress_at, b.retry_at, b.start_lsn::text AS start_lsn,
  array_to_json(b.highest)::text AS highest, array_to_json(b.cursor)::text AS cursor, b.rows_done, b.rows_expected,
  b.failures, b.last_error, b.lease_owner, coalesce(b.lease_until > statement_timestamp(), false) AS leased,
  b.declaration::text AS declaration)sql";

constexpr char kList[] = R"sql(
SELECT {columns}, NULL::bytea AS descriptors FROM lockstep.backfills b
WHERE ($1 = '' OR b.outbox = to_regclass($1)) AND (b.ended_at IS NULL OR NOT $3::boolean)
ORDER BY b.created_at DESC, b.id LIMIT $2::int)sql";

constexpr char kFind[] = R"sql(
SELECT DISTINCT ON (b.outbox) {columns}, b.descriptors FROM lockstep.backfills b
WHERE b.id::text = $1 OR (b.name = $1 AND NOT b.repair)
ORDER BY b.outbox, b.created_at DESC)sql";

constexpr char kAudit[] = R"sql(
SELECT row_to_json(a)::text AS entry
FROM (
  SELECT at::text, actor, role, action, note FROM lockstep.outbox_audit
  WHERE outbox = $1 AND sequence IS NULL AND detail ->> 'backfill' = $2
  ORDER BY id
) a)sql";

// $1 id, $2 the new state, $3 states that it may come from, $4 actor, $5 action, $6 reason
constexpr char kChange[] = R"sql(
WITH changed AS (
  UPDATE lockstep.backfills b
  SET state = $2, ended_at = CASE WHEN $2 = 'cancelled' THEN now() END,
      failures = 0, retry_at = NULL, last_error = CASE WHEN $2 = 'running' THEN NULL ELSE b.last_error END,
      lease_token = NULL, lease_owner = NULL, lease_until = NULL
  WHERE b.id = $1::uuid AND b.state = ANY ($3::text[])
  RETURNING b.id, b.outbox, b.name),
audited AS (
  INSERT INTO lockstep.outbox_audit (actor, action, outbox, note, detail)
  SELECT $4, $5, lockstep.outbox_name(outbox), nullif($6, ''), jsonb_build_object('backfill', id, 'name', name)
  FROM changed),
cleaned AS (
  DELETE FROM lockstep.backfill_keys k USING changed WHERE k.backfill = changed.id AND $2 = 'cancelled')
SELECT id FROM changed)sql";

// $1 outboxes, $2 token, $3 owner, $4 ttl
constexpr char kClaim[] = R"sql(
WITH next AS (
  SELECT id FROM lockstep.backfills
  WHERE outbox = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) AS name) AND state = 'running'
    AND (lease_until IS NULL OR lease_until < statement_timestamp() OR lease_token = $2::uuid)
    AND (retry_at IS NULL OR retry_at <= statement_timestamp())
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

constexpr size_t kKeysPerInsert = 10'000;

std::optional<KeyTexts> KeyOf(const std::optional<std::string>& json) {
  if (!json.has_value()) return std::nullopt;
  return ordered_json::parse(*json).get<KeyTexts>();
}

BackfillRecord RecordOf(const Row& row) {
  BackfillRecord record;
  record.id = row.String("id");
  record.outbox = row.String("outbox");
  record.name = row.String("name");
  record.repair = row.Bool("repair");
  record.state = row.String("state");
  record.created_by = row.String("created_by");
  record.role = row.String("role");
  record.reason = row.String("reason");
  record.created_at = row.Time("created_at");
  record.begun_at = row.OptionalTime("begun_at");
  record.ended_at = row.OptionalTime("ended_at");
  record.progress_at = row.OptionalTime("progress_at");
  record.retry_at = row.OptionalTime("retry_at");
  record.start_lsn = row.String("start_lsn");
  record.highest = KeyOf(row.OptionalText("highest"));
  record.cursor = KeyOf(row.OptionalText("cursor"));
  record.rows_done = row.Int("rows_done");
  record.rows_expected = row.Int("rows_expected");
  record.failures = static_cast<int>(row.Int("failures"));
  record.last_error = row.String("last_error");
  record.lease_owner = row.String("lease_owner");
  record.leased = row.Bool("leased");
  record.declaration = ordered_json::parse(row.Text("declaration"));
  record.descriptors = row.Bytes("descriptors");
  return record;
}

std::string WithColumns(std::string_view sql) { return FillNames(sql, {{"columns", kColumns}}); }

absl::Status ExplainCreate(const absl::Status& status, const Declaration& declaration) {
  const std::string state = postgres::SqlState(status);
  if (state == "23505") {
    return absl::AlreadyExistsError(fmt::format(
        "backfill {} of {} has not ended: lockstepctl backfill status {} shows it, cancel ends it",
        declaration.name, declaration.outbox.ToString(), declaration.name));
  }
  if (state == "42501") {
    return absl::PermissionDeniedError(fmt::format(
        "this role may not start a backfill of {}: lockstep.grant_operator gives that right ({})",
        declaration.outbox.ToString(), MessageOf(status)));
  }
  return status;
}

absl::StatusOr<std::string> Insert(postgres::Executor& executor, const Declaration& declaration,
                                   bool repair, int64_t expected, const std::string& actor,
                                   const std::string& reason) {
  const std::optional<std::string> descriptors =
      declaration.descriptors.empty()
          ? std::nullopt
          : std::optional(postgres::EncodeBytea(declaration.descriptors));
  const auto made =
      executor.Execute(kCreate, declaration.outbox.Quoted(), declaration.name, repair,
                       declaration.ToJson().dump(), descriptors, actor, reason, expected);
  if (!made.ok()) return ExplainCreate(made.status(), declaration);
  if (made->empty()) return Internal("{} is no outbox", declaration.outbox.ToString());
  return (*made)[0].String("id");
}

ordered_json ToJson(const Ghost& ghost) {
  ordered_json json{{"aggregate_id", ghost.aggregate_id}};
  if (ghost.tenant_id.has_value()) json["tenant_id"] = *ghost.tenant_id;
  json["version"] = ghost.version;
  json["payload"] = ghost.payload;
  return json;
}

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

ordered_json TimeOf(const std::optional<WallTime>& time) {
  return time ? ordered_json(FormatTimestamp(*time)) : ordered_json(nullptr);
}

ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

}  // namespace

ordered_json BackfillRecord::ToJson() const {
  return {{"id", id},
          {"outbox", outbox},
          {"backfill", name},
          {"repair", repair},
          {"state", state},
          {"rows_done", rows_done},
          {"rows_expected", rows_expected},
          {"cursor", cursor ? ordered_json(*cursor) : ordered_json(nullptr)},
          {"highest", highest ? ordered_json(*highest) : ordered_json(nullptr)},
          {"created_at", FormatTimestamp(created_at)},
          {"created_by", created_by},
          {"role", role},
          {"reason", TextOrNull(reason)},
          {"begun_at", TimeOf(begun_at)},
          {"progress_at", TimeOf(progress_at)},
          {"ended_at", TimeOf(ended_at)},
          {"worker", leased ? TextOrNull(lease_owner) : ordered_json(nullptr)},
          {"failures", failures},
          {"retry_at", TimeOf(retry_at)},
          {"last_error", TextOrNull(last_error)}};
}

absl::StatusOr<std::string> BackfillStore::Create(const Declaration& declaration, int64_t expected,
                                                  const std::string& actor,
                                                  const std::string& reason) {
  RETURN_IF_ERROR(declaration.Validate());
  RETURN_IF_ERROR(FindOutbox(connection_, declaration.outbox).status());
  return Insert(connection_, declaration, /*repair=*/false, expected, actor, reason);
}

absl::StatusOr<std::string> BackfillStore::CreateRepair(const Declaration& declaration,
                                                        const std::vector<KeyTexts>& keys,
                                                        const std::vector<Ghost>& ghosts,
                                                        const std::string& actor,
                                                        const std::string& reason) {
  RETURN_IF_ERROR(declaration.Validate());
  if (keys.empty() && ghosts.empty()) return InvalidArgument("there is nothing to repair");
  for (const KeyTexts& key : keys) {
    if (key.size() != declaration.key.size()) {
      return InvalidArgument("a key to repair has {} columns, and the key of {} has {}", key.size(),
                             declaration.name, declaration.key.size());
    }
  }
  RETURN_IF_ERROR(FindOutbox(connection_, declaration.outbox).status());
  const size_t count = keys.size() + ghosts.size();
  ASSIGN_OR_RETURN(auto transaction, connection_.Begin());
  ASSIGN_OR_RETURN(const std::string id, Insert(transaction, declaration, /*repair=*/true,
                                                static_cast<int64_t>(count), actor, reason));
  for (size_t first = 0; first < count; first += kKeysPerInsert) {
    postgres::Array key_list;
    postgres::Array ghost_list;
    for (size_t i = first; i < std::min(count, first + kKeysPerInsert); ++i) {
      const Ghost* const ghost = i < keys.size() ? nullptr : &ghosts[i - keys.size()];
      const KeyTexts& key = ghost == nullptr ? keys[i] : ghost->key;
      key.empty() ? key_list.AddNull() : key_list.Add(ordered_json(key).dump());
      ghost == nullptr ? ghost_list.AddNull()
                       : ghost_list.Add(lockstep::publisher::ToJson(*ghost).dump());
    }
    RETURN_IF_ERROR(
        transaction.Run(kAddKeys, id, static_cast<int64_t>(first + 1), key_list, ghost_list));
  }
  RETURN_IF_ERROR(transaction.Commit());
  return id;
}

absl::StatusOr<std::vector<BackfillRecord>> BackfillStore::List(const std::string& outbox,
                                                                int at_most, bool open) {
  ASSIGN_OR_RETURN(const Result rows,
                   connection_.Execute(WithColumns(kList), outbox, at_most, open));
  std::vector<BackfillRecord> records;
  for (const Row row : rows) records.push_back(RecordOf(row));
  return records;
}

absl::StatusOr<BackfillRecord> BackfillStore::Find(const std::string& name_or_id) {
  ASSIGN_OR_RETURN(const Result rows, connection_.Execute(WithColumns(kFind), name_or_id));
  if (rows.empty()) {
    return NotFound("there is no backfill {}; lockstepctl backfill list shows those that are",
                    name_or_id);
  }
  if (rows.rows() > 1) {
    return InvalidArgument(
        "several outboxes have a backfill {}: name it by its id, which "
        "lockstepctl backfill list shows",
        name_or_id);
  }
  return RecordOf(rows[0]);
}

absl::StatusOr<ordered_json> BackfillStore::ReadAudit(const BackfillRecord& backfill) {
  ASSIGN_OR_RETURN(const Result rows, connection_.Execute(kAudit, backfill.outbox, backfill.id));
  auto list = ordered_json::array();
  for (const Row row : rows) list.push_back(ordered_json::parse(row.Text("entry")));
  return list;
}

absl::StatusOr<std::string> BackfillStore::Apply(Change change, const std::string& id,
                                                 const std::string& actor,
                                                 const std::string& reason) {
  struct Step {
    const char* action;
    const char* to;
    std::vector<std::string> from;
  };
  const Step step = change == Change::kPause ? Step{"pause", "paused", {"running"}}
                    : change == Change::kResume
                        ? Step{"resume", "running", {"paused", "failed"}}
                        : Step{"cancel", "cancelled", {"running", "paused", "failed"}};
  ASSIGN_OR_RETURN(const Result changed,
                   connection_.Execute(kChange, id, step.to, step.from, actor,
                                       fmt::format("backfill {}", step.action), reason));
  if (!changed.empty()) return std::string(step.to);
  ASSIGN_OR_RETURN(const BackfillRecord now, Find(id));
  return FailedPrecondition("backfill {} is {}: {} is for one that is {}", now.name, now.state,
                            step.action, fmt::join(step.from, " or "));
}

absl::StatusOr<std::optional<BackfillRecord>> BackfillStore::Claim(
    const std::vector<std::string>& outboxes, const std::string& token, const std::string& owner,
    Millis ttl) {
  ASSIGN_OR_RETURN(const Result claimed,
                   connection_.Execute(WithColumns(kClaim), outboxes, token, owner, ttl));
  if (claimed.empty()) return std::nullopt;
  return RecordOf(claimed[0]);
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
                                            const KeyTexts& cursor, int64_t rows, Millis ttl) {
  ASSIGN_OR_RETURN(const int64_t changed,
                   connection_.Affected(kAdvance, id, token, cursor, rows, ttl));
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
    item.key = KeyOf(row.OptionalText("key")).value_or(KeyTexts());
    if (row.IsNull("ghost")) continue;
    ASSIGN_OR_RETURN(item.ghost, GhostOf(ordered_json::parse(row.Text("ghost")), item.key));
  }
  return items;
}

absl::StatusOr<std::string> BackfillStore::CurrentLsn() {
  ASSIGN_OR_RETURN(const Result found, connection_.Execute(kLsn));
  return found[0].String("lsn");
}

}  // namespace lockstep::publisher
