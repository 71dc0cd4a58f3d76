#include "publisher/backfill/backfill_store.h"

#include <utility>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {
namespace {

using nlohmann::ordered_json;
using postgres::Result;
using postgres::Row;

// $1 outbox, $2 name, $3 repair, $4 declaration, $5 descriptors, $6 actor, $7 reason, $8 rows,
// $9 id
constexpr char kCreate[] = R"sql(
WITH made AS (
  INSERT INTO lockstep.backfills (id, outbox, name, repair, declaration, descriptors, created_by, reason, rows_expected)
  SELECT coalesce(nullif($9, '')::uuid, gen_random_uuid()), o.outbox, $2, $3::boolean, $4::jsonb, $5::bytea, $6, nullif($7, ''), $8::bigint
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

constexpr char kList[] = R"sql(
SELECT {columns}, NULL::bytea AS descriptors FROM lockstep.backfills b
WHERE ($1 = '' OR b.outbox = to_regclass($1)) AND (b.ended_at IS NULL OR NOT $3::boolean)
ORDER BY b.created_at DESC, b.id LIMIT $2::int)sql";

// The one that has not ended, whatever the clock said when it was made.
constexpr char kFind[] = R"sql(
SELECT DISTINCT ON (b.outbox) {columns}, b.descriptors FROM lockstep.backfills b
WHERE b.id::text = $1 OR (b.name = $1 AND NOT b.repair)
ORDER BY b.outbox, b.ended_at IS NULL DESC, b.created_at DESC)sql";

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

constexpr size_t kKeysPerInsert = 10'000;

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
                                   const std::string& reason, const std::string& id = "") {
  const std::optional<std::string> descriptors =
      declaration.descriptors.empty()
          ? std::nullopt
          : std::optional(postgres::EncodeBytea(declaration.descriptors));
  const auto made =
      executor.Execute(kCreate, declaration.outbox.Quoted(), declaration.name, repair,
                       declaration.ToJson().dump(), descriptors, actor, reason, expected, id);
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

}  // namespace

absl::StatusOr<std::string> BackfillStore::Create(const Declaration& declaration, int64_t expected,
                                                  const std::string& actor,
                                                  const std::string& reason,
                                                  const std::string& id) {
  RETURN_IF_ERROR(declaration.Validate());
  RETURN_IF_ERROR(FindOutbox(connection_, declaration.outbox).status());
  return Insert(connection_, declaration, /*repair=*/false, expected, actor, reason, id);
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
                   connection_.Execute(WithRecordColumns(kList), outbox, at_most, open));
  std::vector<BackfillRecord> records;
  for (const Row row : rows) records.push_back(ReadRecord(row));
  return records;
}

absl::StatusOr<BackfillRecord> BackfillStore::Find(const std::string& name_or_id) {
  ASSIGN_OR_RETURN(const Result rows, connection_.Execute(WithRecordColumns(kFind), name_or_id));
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
  return ReadRecord(rows[0]);
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

}  // namespace lockstep::publisher
