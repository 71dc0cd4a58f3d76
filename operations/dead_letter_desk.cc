#include "operations/dead_letter_desk.h"

#include <utility>

#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::operations {
namespace {

#define LOCKSTEP_DEAD_LETTER_COLUMNS                                                        \
  "d.id, d.event_id, d.aggregate_key, d.event_type, d.message_id, d.ordering_key, d.code, " \
  "d.reason, d.state, d.note, d.attributes, d.version, d.attempts, d.blocks, "              \
  "(SELECT count(*) FROM {state}.parked p WHERE p.generation = d.generation AND d.blocks "  \
  "   AND p.aggregate_key = d.aggregate_key AND p.version > d.version), "                   \
  "d.payload_bytes, d.dead_at"

constexpr std::string_view kList = "SELECT " LOCKSTEP_DEAD_LETTER_COLUMNS R"(
  FROM {state}.dead_letters d
 WHERE d.group_name = $1
   AND ($2::bigint IS NULL OR d.id = $2)
   AND ($3 = '' OR d.event_id = nullif($3, '')::uuid)
   AND ($4 = '' OR d.aggregate_key = $4 OR d.ordering_key = $4)
   AND ($5 = '' OR d.code = $5)
   AND ($6 = '' OR d.event_type = $6)
   AND CASE WHEN $7 = '' THEN d.state IN ('dead', 'quarantined') ELSE d.state = $7 END
 ORDER BY d.aggregate_key, d.version, d.id
 LIMIT $8)";

constexpr std::string_view kShow = "SELECT " LOCKSTEP_DEAD_LETTER_COLUMNS R"(
  FROM {state}.dead_letters d WHERE d.group_name = $1 AND d.id = $2)";

// Apart: a reader has no right to payloads.
constexpr std::string_view kPayload =
    "SELECT payload FROM {state}.dead_letters WHERE group_name = $1 AND id = $2";

constexpr std::string_view kQuarantine = R"(
WITH moved AS (
  UPDATE {state}.dead_letters SET state = $3, note = $5
   WHERE group_name = $1 AND id = ANY ($2::bigint[])
     AND state = CASE WHEN $3 = 'dead' THEN 'quarantined' ELSE 'dead' END
  RETURNING id, event_id, aggregate_key, version, code)
INSERT INTO {state}.audit (group_name, action, operator, reason, old, new)
SELECT $1, 'dead_letters.quarantine', $4, $5, to_jsonb(moved),
       jsonb_build_object('state', $3::text)
  FROM moved)";

DeadLetterRow Read(const postgres::Result& rows, int i) {
  const auto text = [&](int column) { return std::string(rows.Text(i, column)); };
  DeadLetterRow row;
  row.id = rows.Int(i, 0);
  row.event_id = text(1);
  row.aggregate_key = text(2);
  row.event_type = text(3);
  row.message_id = text(4);
  row.ordering_key = text(5);
  row.code = text(6);
  row.reason = text(7);
  row.state = text(8);
  row.note = text(9);
  row.attributes = text(10);
  if (!rows.IsNull(i, 11)) row.version = rows.Int(i, 11);
  row.attempts = static_cast<int>(rows.Int(i, 12));
  row.blocks = rows.Bool(i, 13);
  row.waiting = rows.Int(i, 14);
  row.payload_bytes = rows.Int(i, 15);
  row.dead_at = text(16);
  return row;
}

}  // namespace

DeadLetterDesk::DeadLetterDesk(const offsets::StateSchema& schema, ConsumerGroup group)
    : group_(std::move(group)),
      list_(schema, "desk_list", kList),
      show_(schema, "desk_show", kShow),
      payload_(schema, "desk_payload", kPayload),
      quarantine_(schema, "desk_quarantine", kQuarantine) {}

absl::StatusOr<std::vector<DeadLetterRow>> DeadLetterDesk::List(postgres::Connection& connection,
                                                                const DeadLetterFilter& filter,
                                                                int limit) const {
  postgres::Params params;
  params.Add(group_.value());
  filter.id ? params.Add(*filter.id) : params.Add(nullptr);
  params.Add(filter.event_id)
      .Add(filter.key)
      .Add(filter.code)
      .Add(filter.event_type)
      .Add(filter.state)
      .Add(limit);
  ASSIGN_OR_RETURN(const postgres::Result rows, connection.Execute(list_, params));
  std::vector<DeadLetterRow> letters;
  for (int i = 0; i < rows.rows(); ++i) letters.push_back(Read(rows, i));
  return letters;
}

absl::StatusOr<DeadLetterRow> DeadLetterDesk::Show(postgres::Connection& connection, int64_t id,
                                                   bool with_payload) const {
  const auto which = postgres::Params(group_.value(), id);
  ASSIGN_OR_RETURN(const postgres::Result rows, connection.Execute(show_, which));
  if (rows.empty()) return NotFound("group '{}' has no dead letter {}", group_.value(), id);
  DeadLetterRow row = Read(rows, 0);
  if (with_payload) {
    ASSIGN_OR_RETURN(const postgres::Result payload, connection.Execute(payload_, which));
    if (!payload.empty()) row.payload = payload.Bytes(0, 0);
  }
  return row;
}

absl::StatusOr<int64_t> DeadLetterDesk::Quarantine(postgres::Connection& connection,
                                                   const std::vector<int64_t>& ids,
                                                   bool quarantined,
                                                   const std::string& operator_name,
                                                   const std::string& note) const {
  postgres::Array array;
  for (const int64_t id : ids) array.Add(id);
  ASSIGN_OR_RETURN(const postgres::Result moved,
                   connection.Execute(quarantine_, group_.value(), array,
                                      quarantined ? "quarantined" : "dead", operator_name, note));
  return moved.affected_rows();
}

}  // namespace lockstep::operations
