#include "state/events/dead_letters.h"

#include <utility>

#include "platform/status.h"
#include "platform/text.h"
#include "state/events/message_columns.h"
#include "state/groups/rebuilds.h"

namespace lockstep::state {
namespace {

constexpr size_t kMaxReasonBytes = 2048;

// One that was replayed, waited behind another and died again is the same letter.
constexpr std::string_view kInsert = R"(
INSERT INTO {state}.dead_letters
       (group_name, generation, event_id, aggregate_key, version, event_type, message_id,
        ordering_key, publish_time, attributes, payload, code, reason, attempts, blocks,
        decision, decided_by, decided_why, state, note, resolved_by, resolved_at)
SELECT $1::text, $2::int, d.*, coalesce(d.decision, 'dead'), 'decided before: ' || d.why,
       CASE d.decision WHEN 'discarded' THEN d.by END,
       CASE d.decision WHEN 'discarded' THEN now() END
  FROM unnest($3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[],
              $9::timestamptz[], $10::jsonb[], $11::bytea[], $12::text[], $13::text[],
              $14::int[], $15::boolean[], $16::text[], $17::text[], $18::text[])
       AS d (event_id, aggregate_key, version, event_type, message_id, ordering_key, publish_time,
             attributes, payload, code, reason, attempts, blocks, decision, by, why)
ON CONFLICT (generation, message_id) DO UPDATE
   SET state = 'dead', resolved_at = NULL, resolved_by = NULL,
       code = EXCLUDED.code, reason = EXCLUDED.reason, attempts = EXCLUDED.attempts,
       blocks = EXCLUDED.blocks
 WHERE dead_letters.state = 'replayed')";

// Of each event the newest decision; NULL = it was taken back, by a replay or out of quarantine.
constexpr std::string_view kDecisions = R"(
SELECT DISTINCT ON (known.id) known.id, d.decision, d.decided_by, d.decided_why
  FROM unnest($2::text[]) AS known (id)
  JOIN {state}.dead_letters d
    ON d.group_name = $1 AND coalesce(d.event_id::text, d.message_id) = known.id
 WHERE d.decided_by IS NOT NULL
 ORDER BY known.id, d.id DESC)";

constexpr std::string_view kLoad = R"(
SELECT message_id, ordering_key, publish_time, attributes, payload, generation, attempts, state
  FROM {state}.dead_letters WHERE group_name = $1 AND id = $2)";

constexpr std::string_view kResolve = R"(
WITH resolved AS (
  UPDATE {state}.dead_letters
     SET state = $3, resolved_at = now(), resolved_by = $4,
         decision = CASE $3 WHEN 'discarded' THEN $3 END, decided_by = $4, decided_why = $5
   WHERE group_name = $1 AND id = $2 AND state = 'dead'
  RETURNING id, event_id, aggregate_key, version, code)
INSERT INTO {state}.audit (group_name, action, operator, reason, old, new)
SELECT $1, 'dead_letters.' || $3, $4, $5, to_jsonb(resolved), jsonb_build_object('state', $3::text)
  FROM resolved)";

constexpr std::string_view kBlocking = R"(
SELECT min(version) AS version FROM {state}.dead_letters
 WHERE generation = $1 AND aggregate_key = $2 AND blocks AND state IN ('dead', 'quarantined'))";

// Versions between two, both left out, that are dead or parked.
constexpr std::string_view kAtHand = R"(
SELECT count(*)
  FROM (SELECT version FROM {state}.dead_letters
         WHERE generation = $1 AND aggregate_key = $2 AND version > $3 AND version < $4
         UNION
        SELECT version FROM {state}.parked
         WHERE generation = $1 AND aggregate_key = $2 AND version > $3 AND version < $4) AS v)";

constexpr std::string_view kRecord = R"(
UPDATE {state}.dead_letters SET attempts = attempts + 1, code = $3, reason = $4
 WHERE group_name = $1 AND id = $2 AND state = 'dead')";

constexpr std::string_view kDiscardAll = R"(
UPDATE {state}.dead_letters
   SET group_name = $1, state = 'discarded', resolved_at = now(), resolved_by = $3,
       note = concat_ws('; ', note, $4::text)
 WHERE generation = $2 AND state IN ('dead', 'quarantined'))";

constexpr std::string_view kOvertake = R"(
UPDATE {state}.dead_letters d
   SET blocks = false,
       note = concat_ws('; ', d.note,
                        format('nothing waits for it since a snapshot of version %s', s.version))
  FROM unnest($2::text[], $3::bigint[]) AS s (key, version)
 WHERE d.generation = $1 AND d.aggregate_key = s.key AND d.version <= s.version
   AND d.blocks AND d.state IN ('dead', 'quarantined'))";

constexpr std::string_view kTake =
    "UPDATE {state}.dead_letters SET group_name = $1 WHERE group_name = $2";

constexpr std::string_view kList = R"(
SELECT d.id, d.event_id, d.aggregate_key, d.event_type, d.message_id, d.ordering_key, d.code,
       d.reason, d.state, d.note, d.attributes, d.version, d.attempts, d.blocks,
       (SELECT count(*) FROM {state}.parked p
         WHERE p.generation = d.generation AND d.blocks AND p.aggregate_key = d.aggregate_key
           AND p.version > d.version) AS waiting,
       d.payload_bytes, d.dead_at
  FROM {state}.dead_letters d
 WHERE d.group_name = $1
   AND (cardinality($2::bigint[]) = 0 OR d.id = ANY ($2))
   AND ($3 = '' OR d.event_id = nullif($3, '')::uuid)
   AND ($4 = '' OR d.aggregate_key = $4 OR d.ordering_key = $4)
   AND ($5 = '' OR d.code = $5)
   AND ($6 = '' OR d.event_type = $6)
   AND CASE $7 WHEN '' THEN d.state IN ('dead', 'quarantined')
               WHEN 'any' THEN true
               ELSE d.state = $7 END
 ORDER BY CASE WHEN $9 THEN d.dead_at END DESC, CASE WHEN $9 THEN d.id END DESC,
          d.aggregate_key, d.version, d.id
 LIMIT $8)";

constexpr std::string_view kCountOpen = R"(
SELECT count(*)
  FROM (SELECT 1 FROM {state}.dead_letters
         WHERE group_name = $1 AND state IN ('dead', 'quarantined')
         LIMIT 100000) open)";

constexpr std::string_view kCountReplayed = R"(
SELECT count(*) FROM {state}.dead_letters WHERE group_name = $1 AND state = 'replayed')";

constexpr std::string_view kNewest = R"(
SELECT id, event_id, message_id, aggregate_key, ordering_key, version, event_type, code, reason,
       attempts, blocks, state, dead_at, publish_time
  FROM {state}.dead_letters
 WHERE group_name = $1 AND state IN ('dead', 'quarantined')
 ORDER BY id DESC
 LIMIT $2)";

constexpr std::string_view kCauses = R"(
SELECT code, regexp_replace(reason, '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+', '…', 'g') AS reason,
       count(*) AS letters, max(dead_at) AS newest_at
  FROM (SELECT code, reason, dead_at
          FROM {state}.dead_letters
         WHERE group_name = $1 AND state IN ('dead', 'quarantined')
         ORDER BY id DESC
         LIMIT 1000) newest
 GROUP BY 1, 2
 ORDER BY letters DESC, newest_at DESC
 LIMIT $2)";

// Apart: a reader has no right to payloads.
constexpr std::string_view kPayload =
    "SELECT payload FROM {state}.dead_letters WHERE group_name = $1 AND id = $2";

constexpr std::string_view kQuarantine = R"(
WITH moved AS (
  UPDATE {state}.dead_letters
     SET state = $3, note = $5, decision = CASE $3 WHEN 'quarantined' THEN $3 END,
         decided_by = $4, decided_why = $5
   WHERE group_name = $1 AND id = ANY ($2::bigint[])
     AND state = CASE WHEN $3 = 'dead' THEN 'quarantined' ELSE 'dead' END
  RETURNING id, event_id, aggregate_key, version, code)
INSERT INTO {state}.audit (group_name, action, operator, reason, old, new)
SELECT $1, 'dead_letters.quarantine', $4, $5, to_jsonb(moved),
       jsonb_build_object('state', $3::text)
  FROM moved)";

DeadLetterRow Read(const postgres::Row& row) {
  return {.id = row.Int("id"),
          .event_id = row.String("event_id"),
          .aggregate_key = row.String("aggregate_key"),
          .event_type = row.String("event_type"),
          .message_id = row.String("message_id"),
          .ordering_key = row.String("ordering_key"),
          .code = row.String("code"),
          .reason = row.String("reason"),
          .state = row.String("state"),
          .note = row.String("note"),
          .attributes = row.String("attributes"),
          .version = row.OptionalInt("version"),
          .attempts = static_cast<int>(row.Int("attempts")),
          .blocks = row.Bool("blocks"),
          .waiting = row.Int("waiting"),
          .payload_bytes = row.Int("payload_bytes"),
          .dead_at = row.Time("dead_at"),
          .payload = {}};
}

}  // namespace

absl::Status DeadLetters::Insert(postgres::Transaction& transaction, int generation,
                                 const std::vector<Dead>& items) const {
  if (items.empty()) return absl::OkStatus();
  postgres::Array ids, keys, versions, types, codes, reasons, attempts, blocks;
  postgres::Array decisions, deciders, whys;
  MessageColumns messages;
  for (const auto& [item, blocking, decision] : items) {
    const bool decided = decision.has_value();
    decided ? decisions.Add(decision->kind) : decisions.AddNull();
    decided ? deciders.Add(decision->by) : deciders.AddNull();
    decided ? whys.Add(decision->why) : whys.AddNull();
    ids.AddIfAny(item->event.event_id.value());
    keys.AddIfAny(item->aggregate_key);
    item->has_version ? versions.Add(item->event.version) : versions.AddNull();
    types.AddIfAny(item->event.event_type);
    messages.Add(*item);
    codes.Add(item->poison->code);
    reasons.Add(Truncate(item->poison->reason, kMaxReasonBytes));
    attempts.Add(item->attempts);
    blocks.Add(blocking);
  }
  return transaction.Run(schema_.Sql(kInsert), group_, generation, ids, keys, versions, types,
                         messages.message_id, messages.ordering_key, messages.publish_time,
                         messages.attributes, messages.payload, codes, reasons, attempts, blocks,
                         decisions, deciders, whys);
}

absl::StatusOr<std::vector<std::optional<DeadLetters::Decision>>> DeadLetters::Decisions(
    postgres::Transaction& transaction, const std::vector<const envelope::Received*>& items) const {
  std::vector<std::optional<Decision>> decisions(items.size());
  std::vector<std::string> ids;
  for (const envelope::Received* item : items) {
    const std::string& event = item->event.event_id.value();
    ids.push_back(event.empty() ? item->message_id.value() : event);
  }
  const ConsumerGroup group = Rebuilds::LiveGroup(group_);
  ASSIGN_OR_RETURN(const auto rows, transaction.Execute(schema_.Sql(kDecisions), group, ids));
  for (const postgres::Row row : rows) {
    if (row.IsNull("decision")) continue;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != row.Text("id")) continue;
      decisions[i] = Decision{.kind = row.String("decision"),
                              .by = row.String("decided_by"),
                              .why = row.String("decided_why")};
    }
  }
  return decisions;
}

absl::StatusOr<OpenDeadLetter> DeadLetters::Load(postgres::Transaction& transaction,
                                                 int64_t id) const {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   transaction.Execute(schema_.Sql(kLoad), group_, id));
  if (rows.empty()) return NotFound("group '{}' has no dead letter {}", group_.value(), id);
  const postgres::Row row = rows[0];
  if (row.Text("state") != "dead") {
    return FailedPrecondition("dead letter {} is {}", id, row.Text("state"));
  }
  OpenDeadLetter letter{.generation = static_cast<int>(row.Int("generation")),
                        .item = ReadMessage(row)};
  letter.item.attempts = static_cast<int>(row.Int("attempts"));
  return letter;
}

absl::Status DeadLetters::Resolve(postgres::Transaction& transaction,
                                  const DeadLetterResolution& resolution) const {
  ASSIGN_OR_RETURN(const int64_t resolved,
                   transaction.Affected(schema_.Sql(kResolve), group_, resolution.id,
                                        resolution.replay ? "replayed" : "discarded",
                                        resolution.operator_name, resolution.reason));
  if (resolved > 0) return absl::OkStatus();
  return FailedPrecondition("dead letter {} was resolved by somebody else meanwhile",
                            resolution.id);
}

absl::StatusOr<std::optional<int64_t>> DeadLetters::Blocking(postgres::Transaction& transaction,
                                                             int generation,
                                                             const std::string& key) const {
  ASSIGN_OR_RETURN(const postgres::Result least,
                   transaction.Execute(schema_.Sql(kBlocking), generation, key));
  return least[0].OptionalInt("version");
}

absl::StatusOr<int64_t> DeadLetters::AtHand(postgres::Transaction& transaction, int generation,
                                            const std::string& key, int64_t after,
                                            int64_t before) const {
  return transaction.Number(schema_.Sql(kAtHand), generation, key, after, before);
}

absl::Status DeadLetters::Record(postgres::Connection& connection, int64_t id,
                                 const envelope::Poison& poison) const {
  return connection.Run(schema_.Sql(kRecord), group_, id, poison.code,
                        Truncate(poison.reason, kMaxReasonBytes));
}

absl::StatusOr<int64_t> DeadLetters::Overtake(
    postgres::Transaction& transaction, int generation,
    const std::vector<std::pair<std::string, int64_t>>& snapshots) const {
  postgres::Array keys, versions;
  for (const auto& [key, version] : snapshots) {
    keys.Add(key);
    versions.Add(version);
  }
  return transaction.Affected(schema_.Sql(kOvertake), generation, keys, versions);
}

absl::Status DeadLetters::DiscardAll(postgres::Transaction& transaction, int generation,
                                     const std::string& operator_name,
                                     const std::string& note) const {
  return transaction.Run(schema_.Sql(kDiscardAll), group_, generation, operator_name, note);
}

absl::Status DeadLetters::Take(postgres::Transaction& transaction,
                               const ConsumerGroup& from) const {
  return transaction.Run(schema_.Sql(kTake), group_, from);
}

absl::StatusOr<std::vector<DeadLetterRow>> DeadLetters::List(postgres::Connection& connection,
                                                             const DeadLetterFilter& filter,
                                                             int limit) const {
  ASSIGN_OR_RETURN(const auto rows,
                   connection.Execute(schema_.Sql(kList), group_, postgres::Array(filter.ids),
                                      filter.event_id, filter.key, filter.code, filter.event_type,
                                      filter.state, limit, filter.newest_first));
  std::vector<DeadLetterRow> letters;
  for (const postgres::Row row : rows) letters.push_back(Read(row));
  return letters;
}

absl::StatusOr<DeadLetterRow> DeadLetters::Show(postgres::Connection& connection, int64_t id,
                                                bool with_payload) const {
  ASSIGN_OR_RETURN(auto letters, List(connection, {.ids = {id}, .state = "any"}, 1));
  if (letters.empty()) return NotFound("group '{}' has no dead letter {}", group_.value(), id);
  if (with_payload) {
    ASSIGN_OR_RETURN(const auto rows, connection.Execute(schema_.Sql(kPayload), group_, id));
    if (!rows.empty()) letters[0].payload = rows[0].Bytes("payload");
  }
  return std::move(letters[0]);
}

absl::StatusOr<int64_t> DeadLetters::Quarantine(postgres::Connection& connection,
                                                const std::vector<int64_t>& ids, bool quarantined,
                                                const std::string& operator_name,
                                                const std::string& note) const {
  return connection.Affected(schema_.Sql(kQuarantine), group_, ids,
                             quarantined ? "quarantined" : "dead", operator_name, note);
}

absl::StatusOr<int64_t> DeadLetters::CountOpen(postgres::Connection& connection) const {
  return connection.Number(schema_.Sql(kCountOpen), group_);
}

absl::StatusOr<int64_t> DeadLetters::CountReplayed(postgres::Connection& connection) const {
  return connection.Number(schema_.Sql(kCountReplayed), group_);
}

absl::StatusOr<postgres::Result> DeadLetters::Newest(postgres::Connection& connection,
                                                     int limit) const {
  return connection.Execute(schema_.Sql(kNewest), group_, limit);
}

absl::StatusOr<postgres::Result> DeadLetters::Causes(postgres::Connection& connection,
                                                     int limit) const {
  return connection.Execute(schema_.Sql(kCauses), group_, limit);
}

}  // namespace lockstep::state
