#include "state/events/dead_letters.h"

#include "platform/status.h"
#include "platform/text.h"
#include "state/events/message_columns.h"

namespace lockstep::state {
namespace {

constexpr size_t kMaxReasonBytes = 2048;

// One that was replayed, waited behind another and died again is the same letter.
constexpr std::string_view kInsert = R"(
INSERT INTO {state}.dead_letters
       (group_name, generation, event_id, aggregate_key, version, event_type, message_id,
        ordering_key, publish_time, attributes, payload, code, reason, attempts, blocks)
SELECT $1::text, $2::int, d.*
  FROM unnest($3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[],
              $9::timestamptz[], $10::jsonb[], $11::bytea[], $12::text[], $13::text[],
              $14::int[], $15::boolean[]) AS d
ON CONFLICT (generation, message_id) DO UPDATE
   SET state = 'dead', resolved_at = NULL, resolved_by = NULL,
       code = EXCLUDED.code, reason = EXCLUDED.reason, attempts = EXCLUDED.attempts,
       blocks = EXCLUDED.blocks
 WHERE dead_letters.state = 'replayed')";

constexpr std::string_view kLoad = R"(
SELECT message_id, ordering_key, publish_time, attributes, payload, generation, attempts, state
  FROM {state}.dead_letters WHERE group_name = $1 AND id = $2)";

constexpr std::string_view kResolve = R"(
WITH resolved AS (
  UPDATE {state}.dead_letters
     SET state = $3, resolved_at = now(), resolved_by = $4
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

constexpr std::string_view kTake =
    "UPDATE {state}.dead_letters SET group_name = $1 WHERE group_name = $2";

}  // namespace

absl::Status DeadLetters::Insert(postgres::Transaction& transaction, int generation,
                                 const std::vector<Dead>& items) const {
  if (items.empty()) return absl::OkStatus();
  postgres::Array ids, keys, versions, types, codes, reasons, attempts, blocks;
  MessageColumns messages;
  for (const auto& [item, blocking] : items) {
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
                         messages.attributes, messages.payload, codes, reasons, attempts, blocks);
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

absl::Status DeadLetters::DiscardAll(postgres::Transaction& transaction, int generation,
                                     const std::string& operator_name,
                                     const std::string& note) const {
  return transaction.Run(schema_.Sql(kDiscardAll), group_, generation, operator_name, note);
}

absl::Status DeadLetters::Take(postgres::Transaction& transaction,
                               const ConsumerGroup& from) const {
  return transaction.Run(schema_.Sql(kTake), group_, from);
}

}  // namespace lockstep::state
