#include "runner/status/state_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::runner {
namespace {

using nlohmann::json;
using postgres::Params;
using postgres::Result;

constexpr char kGroupOffset[] = R"sql(
SELECT subscription, message_id, publish_time, epoch, lag_ms, updated_at, updated_by
  FROM {state}.group_offsets WHERE group_name = $1)sql";

constexpr char kLaneOffsets[] = R"sql(
SELECT instance, lane, subscription, message_id, publish_time, epoch, lag_ms, updated_at, updated_by
  FROM {state}.offsets WHERE group_name = $1 ORDER BY instance, lane LIMIT 500)sql";

// Counting is bounded: beyond it the number tells no more than "very many".
constexpr char kWaitingTotals[] = R"sql(
SELECT count(*), coalesce(sum(parked), 0)
  FROM (SELECT k.parked FROM {state}.key_state k
          JOIN {state}.slots s ON s.generation = k.generation
         WHERE s.group_name = $1 AND s.state = 'active'
           AND (k.parked > 0 OR k.blocked_version IS NOT NULL)
         LIMIT 100000) waiting)sql";

constexpr char kWaiting[] = R"sql(
SELECT k.aggregate_key, k.parked, coalesce(k.blocked_version, k.settled_version + 1) AS waits_for,
       p.version AS first_parked, coalesce(d.dead_at, p.parked_at, k.updated_at) AS since,
       d.id, d.code, d.reason
  FROM {state}.key_state k
  JOIN {state}.slots s ON s.generation = k.generation
  LEFT JOIN LATERAL (SELECT version, parked_at FROM {state}.parked
                      WHERE generation = k.generation AND aggregate_key = k.aggregate_key
                      ORDER BY version LIMIT 1) p ON true
  LEFT JOIN LATERAL (SELECT id, code, reason, dead_at FROM {state}.dead_letters
                      WHERE generation = k.generation AND aggregate_key = k.aggregate_key
                        AND version = k.blocked_version AND blocks
                        AND state IN ('dead', 'quarantined')
                      LIMIT 1) d ON true
 WHERE s.group_name = $1 AND s.state = 'active'
   AND (k.parked > 0 OR k.blocked_version IS NOT NULL)
 ORDER BY k.aggregate_key LIMIT 20)sql";

// Where versions are not followed one by one, what is stored comes before what is dead.
constexpr char kVersionLag[] = R"sql(
SELECT coalesce(max(greatest(p.version, k.blocked_version)
                    - coalesce(k.settled_version, k.blocked_version - 1)), 0)
  FROM (SELECT k.generation, k.aggregate_key, k.settled_version, k.blocked_version
          FROM {state}.key_state k
          JOIN {state}.slots s ON s.generation = k.generation
         WHERE s.group_name = $1 AND s.state = 'active'
           AND (k.parked > 0 OR k.blocked_version IS NOT NULL)
         LIMIT 1000) k
  LEFT JOIN LATERAL (SELECT version FROM {state}.parked
                      WHERE generation = k.generation AND aggregate_key = k.aggregate_key
                      ORDER BY version DESC LIMIT 1) p ON true)sql";

constexpr char kDeadTotal[] = R"sql(
SELECT count(*) FROM (SELECT 1 FROM {state}.dead_letters
  WHERE group_name = $1 AND state IN ('dead', 'quarantined') LIMIT 100000) open)sql";

constexpr char kDead[] = R"sql(
SELECT id, event_id, message_id, aggregate_key, ordering_key, version, event_type, code, reason,
       attempts, blocks, state, dead_at, publish_time
  FROM {state}.dead_letters
 WHERE group_name = $1 AND state IN ('dead', 'quarantined') ORDER BY id DESC LIMIT 50)sql";

constexpr char kAudit[] = R"sql(
SELECT id, at, action, operator, reason, old->>'epoch', new->>'epoch'
  FROM {state}.audit WHERE group_name = $1 ORDER BY id DESC LIMIT 20)sql";

constexpr char kReplays[] =
    "SELECT count(*) FROM {state}.dead_letters WHERE group_name = $1 AND state = 'replayed'";

constexpr char kCheckpoints[] = R"sql(
SELECT number, snapshot, taken_at, epoch, expires_at
  FROM {state}.checkpoints WHERE group_name = $1 ORDER BY number DESC LIMIT 10)sql";

// A column as JSON: NULL as null, times as RFC 3339.
json Text(const Result& rows, int row, int column) {
  const auto text = rows.Optional(row, column);
  return text ? json(*text) : json(nullptr);
}
json Number(const Result& rows, int row, int column) {
  return rows.IsNull(row, column) ? json(nullptr) : json(rows.Int(row, column));
}
json Time(const Result& rows, int row, int column) {
  return rows.IsNull(row, column) ? json(nullptr) : json(FormatTimestamp(rows.Time(row, column)));
}

std::string Why(const Result& rows, int i) {
  if (!rows.IsNull(i, 5)) {
    return fmt::format("Version {} could not be applied (dead letter {}): {} {}", rows.Int(i, 2),
                       rows.Int(i, 5), rows.Text(i, 6), rows.Text(i, 7));
  }
  if (rows.IsNull(i, 2)) return "It waits for an earlier version";
  if (rows.IsNull(i, 3)) return fmt::format("It waits for version {}", rows.Int(i, 2));
  return fmt::format("Version {} has not arrived, version {} has", rows.Int(i, 2), rows.Int(i, 3));
}

}  // namespace

StateReader::StateReader(const std::string& database, const offsets::StateSchema& schema)
    : options_{.url = database,
               .application_name = "lockstep-runner status",
               .statement_timeout = Millis(5'000)},
      group_offset_(schema, "status_group_offset", kGroupOffset),
      lane_offsets_(schema, "status_lane_offsets", kLaneOffsets),
      waiting_totals_(schema, "status_waiting_totals", kWaitingTotals),
      waiting_(schema, "status_waiting", kWaiting),
      version_lag_(schema, "status_version_lag", kVersionLag),
      dead_total_(schema, "status_dead_total", kDeadTotal),
      dead_(schema, "status_dead", kDead),
      audit_(schema, "status_audit", kAudit),
      replays_(schema, "status_replays", kReplays),
      checkpoints_(schema, "status_checkpoints", kCheckpoints) {}

absl::StatusOr<postgres::Connection*> StateReader::Session() {
  if (session_ && !session_->broken()) return session_.get();
  session_.reset();
  ASSIGN_OR_RETURN(session_, postgres::Connection::Open(options_));
  return session_.get();
}

absl::StatusOr<json> StateReader::Read(const std::string& group, GroupRecord& record) {
  ASSIGN_OR_RETURN(postgres::Connection* const session, Session());
  json part = json::object();
  RETURN_IF_ERROR(ReadOffsets(*session, group, part));
  RETURN_IF_ERROR(ReadParked(*session, group, part, record));
  RETURN_IF_ERROR(ReadDeadLetters(*session, group, part, record));
  RETURN_IF_ERROR(ReadHistory(*session, group, part, record));
  return part;
}

absl::Status StateReader::ReadOffsets(postgres::Connection& session, const std::string& group,
                                      json& part) {
  ASSIGN_OR_RETURN(const Result offset, session.Execute(group_offset_, group));
  if (!offset.empty()) {
    part["offset"] = {{"subscription", Text(offset, 0, 0)}, {"message_id", Text(offset, 0, 1)},
                      {"publish_time", Time(offset, 0, 2)}, {"epoch", Number(offset, 0, 3)},
                      {"lag_ms", Number(offset, 0, 4)},     {"updated_at", Time(offset, 0, 5)},
                      {"updated_by", Text(offset, 0, 6)}};
  }
  ASSIGN_OR_RETURN(const Result lanes, session.Execute(lane_offsets_, group));
  part["lane_offsets"] = json::array();
  for (int i = 0; i < lanes.rows(); ++i) {
    part["lane_offsets"].push_back({{"instance", Text(lanes, i, 0)},
                                    {"lane", Number(lanes, i, 1)},
                                    {"subscription", Text(lanes, i, 2)},
                                    {"message_id", Text(lanes, i, 3)},
                                    {"publish_time", Time(lanes, i, 4)},
                                    {"epoch", Number(lanes, i, 5)},
                                    {"lag_ms", Number(lanes, i, 6)},
                                    {"updated_at", Time(lanes, i, 7)},
                                    {"updated_by", Text(lanes, i, 8)}});
  }
  return absl::OkStatus();
}

absl::Status StateReader::ReadParked(postgres::Connection& session, const std::string& group,
                                     json& part, GroupRecord& record) {
  ASSIGN_OR_RETURN(const Result totals, session.Execute(waiting_totals_, group));
  record.parked_keys = totals.Int(0, 0);
  record.parked_events = totals.Int(0, 1);
  part["parked_keys_total"] = record.parked_keys;
  part["parked_events"] = record.parked_events;
  part["parked_keys"] = json::array();
  part["version_lag"] = 0;
  if (record.parked_keys == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Result behind, session.Execute(version_lag_, group));
  part["version_lag"] = record.version_lag = behind.Int(0, 0);
  ASSIGN_OR_RETURN(const Result keys, session.Execute(waiting_, group));
  for (int i = 0; i < keys.rows(); ++i) {
    part["parked_keys"].push_back({{"key", Text(keys, i, 0)},
                                   {"events", Number(keys, i, 1)},
                                   {"waits_for", Number(keys, i, 2)},
                                   {"since", Time(keys, i, 4)},
                                   {"dead_letter", Number(keys, i, 5)},
                                   {"why", Why(keys, i)}});
  }
  return absl::OkStatus();
}

absl::Status StateReader::ReadDeadLetters(postgres::Connection& session, const std::string& group,
                                          json& part, GroupRecord& record) {
  ASSIGN_OR_RETURN(const Result total, session.Execute(dead_total_, group));
  record.dead_letters = total.Int(0, 0);
  part["dead_letters_open"] = record.dead_letters;
  part["dead_letters"] = json::array();
  if (record.dead_letters == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Result dead, session.Execute(dead_, group));
  for (int i = 0; i < dead.rows(); ++i) {
    part["dead_letters"].push_back({{"id", Number(dead, i, 0)},
                                    {"event_id", Text(dead, i, 1)},
                                    {"message_id", Text(dead, i, 2)},
                                    {"key", Text(dead, i, 3)},
                                    {"ordering_key", Text(dead, i, 4)},
                                    {"version", Number(dead, i, 5)},
                                    {"event_type", Text(dead, i, 6)},
                                    {"code", Text(dead, i, 7)},
                                    {"reason", Text(dead, i, 8)},
                                    {"attempts", Number(dead, i, 9)},
                                    {"blocks", dead.Bool(i, 10)},
                                    {"state", Text(dead, i, 11)},
                                    {"dead_at", Time(dead, i, 12)},
                                    {"publish_time", Time(dead, i, 13)}});
  }
  return absl::OkStatus();
}

absl::Status StateReader::ReadHistory(postgres::Connection& session, const std::string& group,
                                      json& part, GroupRecord& record) {
  ASSIGN_OR_RETURN(const Result audit, session.Execute(audit_, group));
  part["history"] = json::array();
  for (int i = 0; i < audit.rows(); ++i) {
    const bool epochs = !audit.IsNull(i, 5) && !audit.IsNull(i, 6);
    part["history"].push_back(
        {{"id", Number(audit, i, 0)},
         {"at", Time(audit, i, 1)},
         {"action", Text(audit, i, 2)},
         {"operator", Text(audit, i, 3)},
         {"reason", Text(audit, i, 4)},
         {"change",
          epochs ? fmt::format("epoch {} → {}", audit.Text(i, 5), audit.Text(i, 6)) : ""}});
  }
  ASSIGN_OR_RETURN(const Result replays, session.Execute(replays_, group));
  record.replays = replays.Int(0, 0);
  ASSIGN_OR_RETURN(const Result checkpoints, session.Execute(checkpoints_, group));
  part["checkpoints"] = json::array();
  for (int i = 0; i < checkpoints.rows(); ++i) {
    part["checkpoints"].push_back({{"number", Number(checkpoints, i, 0)},
                                   {"snapshot", Text(checkpoints, i, 1)},
                                   {"taken_at", Time(checkpoints, i, 2)},
                                   {"epoch", Number(checkpoints, i, 3)},
                                   {"expires_at", Time(checkpoints, i, 4)}});
  }
  if (!checkpoints.empty()) record.checkpoint_at = checkpoints.Time(0, 2);
  return absl::OkStatus();
}

}  // namespace lockstep::runner
