#include "runner/status/state_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "platform/duration.h"
#include "platform/status.h"
#include "state/events/dead_letter_desk.h"
#include "state/events/key_states.h"
#include "state/groups/overview.h"
#include "state/positions/checkpoints.h"
#include "state/positions/offsets.h"

namespace lockstep::runner {
namespace {

using nlohmann::json;
using postgres::Row;

// What a page shows at most.
constexpr int kMaxLanes = 500;
constexpr int kMaxKeys = 20;
constexpr int kMaxLetters = 50;
constexpr int kMaxHistory = 20;
constexpr size_t kMaxCheckpoints = 10;

// A column as JSON: NULL as null, times as RFC 3339.
json Text(const Row& row, std::string_view column) {
  const auto text = row.OptionalText(column);
  return text ? json(*text) : json(nullptr);
}
json Number(const Row& row, std::string_view column) {
  const auto number = row.OptionalInt(column);
  return number ? json(*number) : json(nullptr);
}
json Time(const Row& row, std::string_view column) {
  const auto time = row.OptionalTime(column);
  return time ? json(FormatTimestamp(*time)) : json(nullptr);
}

json Offset(const Row& row) {
  return {{"subscription", Text(row, "subscription")}, {"message_id", Text(row, "message_id")},
          {"publish_time", Time(row, "publish_time")}, {"epoch", Number(row, "epoch")},
          {"lag_ms", Number(row, "lag_ms")},           {"updated_at", Time(row, "updated_at")},
          {"updated_by", Text(row, "updated_by")}};
}

std::string Why(const Row& row) {
  const auto waits_for = row.OptionalInt("waits_for");
  if (!row.IsNull("dead_letter")) {
    return fmt::format("Version {} could not be applied (dead letter {}): {} {}",
                       row.Int("waits_for"), row.Int("dead_letter"), row.Text("code"),
                       row.Text("reason"));
  }
  if (!waits_for) return "It waits for an earlier version";
  if (row.IsNull("first_parked")) return fmt::format("It waits for version {}", *waits_for);
  return fmt::format("Version {} has not arrived, version {} has", *waits_for,
                     row.Int("first_parked"));
}

}  // namespace

StateReader::StateReader(const std::string& database, const state::Schema& schema)
    : options_{.url = database,
               .application_name = "lockstep-runner status",
               .statement_timeout = Millis(5'000)},
      schema_(schema) {}

absl::StatusOr<postgres::Connection*> StateReader::Session() {
  if (session_ && !session_->broken()) return session_.get();
  session_.reset();
  ASSIGN_OR_RETURN(session_, postgres::Connection::Open(options_));
  return session_.get();
}

absl::StatusOr<GroupRecord> StateReader::Read(const std::string& name) {
  ASSIGN_OR_RETURN(postgres::Connection* const session, Session());
  const ConsumerGroup group(name);
  GroupRecord record;
  RETURN_IF_ERROR(ReadOffsets(*session, group, record));
  RETURN_IF_ERROR(ReadParked(*session, group, record));
  RETURN_IF_ERROR(ReadDeadLetters(*session, group, record));
  RETURN_IF_ERROR(ReadHistory(*session, group, record));
  return record;
}

absl::Status StateReader::ReadOffsets(postgres::Connection& session, const ConsumerGroup& group,
                                      GroupRecord& record) {
  json& part = record.part;
  const state::Offsets offsets(schema_);
  ASSIGN_OR_RETURN(const auto offset, offsets.OfGroup(session, group));
  if (!offset.empty()) part["offset"] = Offset(offset[0]);
  ASSIGN_OR_RETURN(const auto lanes, offsets.OfLanes(session, group, kMaxLanes));
  part["lane_offsets"] = json::array();
  for (const Row row : lanes) {
    json lane = Offset(row);
    lane["instance"] = Text(row, "instance");
    lane["lane"] = Number(row, "lane");
    part["lane_offsets"].push_back(std::move(lane));
  }
  return absl::OkStatus();
}

absl::Status StateReader::ReadParked(postgres::Connection& session, const ConsumerGroup& group,
                                     GroupRecord& record) {
  json& part = record.part;
  const state::KeyStates keys(schema_);
  ASSIGN_OR_RETURN(const auto waiting, keys.CountWaiting(session, group));
  part["parked_keys_total"] = record.parked_keys = waiting.keys;
  part["parked_events"] = record.parked_events = waiting.events;
  part["parked_keys"] = json::array();
  part["version_lag"] = 0;
  if (waiting.keys == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(record.version_lag, keys.VersionLag(session, group));
  part["version_lag"] = record.version_lag;
  ASSIGN_OR_RETURN(const auto rows, keys.ListWaiting(session, group, kMaxKeys));
  for (const Row row : rows) {
    part["parked_keys"].push_back({{"key", Text(row, "aggregate_key")},
                                   {"events", Number(row, "parked")},
                                   {"waits_for", Number(row, "waits_for")},
                                   {"since", Time(row, "since")},
                                   {"dead_letter", Number(row, "dead_letter")},
                                   {"why", Why(row)}});
  }
  return absl::OkStatus();
}

absl::Status StateReader::ReadDeadLetters(postgres::Connection& session, const ConsumerGroup& group,
                                          GroupRecord& record) {
  json& part = record.part;
  const state::DeadLetterDesk desk(schema_, group);
  ASSIGN_OR_RETURN(record.replays, desk.CountReplayed(session));
  ASSIGN_OR_RETURN(record.dead_letters, desk.CountOpen(session));
  part["dead_letters_open"] = record.dead_letters;
  part["dead_letters"] = json::array();
  if (record.dead_letters == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto rows, desk.Newest(session, kMaxLetters));
  for (const Row row : rows) {
    part["dead_letters"].push_back({{"id", Number(row, "id")},
                                    {"event_id", Text(row, "event_id")},
                                    {"message_id", Text(row, "message_id")},
                                    {"key", Text(row, "aggregate_key")},
                                    {"ordering_key", Text(row, "ordering_key")},
                                    {"version", Number(row, "version")},
                                    {"event_type", Text(row, "event_type")},
                                    {"code", Text(row, "code")},
                                    {"reason", Text(row, "reason")},
                                    {"attempts", Number(row, "attempts")},
                                    {"blocks", row.Bool("blocks")},
                                    {"state", Text(row, "state")},
                                    {"dead_at", Time(row, "dead_at")},
                                    {"publish_time", Time(row, "publish_time")}});
  }
  return absl::OkStatus();
}

absl::Status StateReader::ReadHistory(postgres::Connection& session, const ConsumerGroup& group,
                                      GroupRecord& record) {
  json& part = record.part;
  ASSIGN_OR_RETURN(const auto audit, state::Overview(schema_).History(session, group, kMaxHistory));
  part["history"] = json::array();
  for (const Row row : audit) {
    const bool epochs = !row.IsNull("old_epoch") && !row.IsNull("new_epoch");
    part["history"].push_back(
        {{"id", Number(row, "id")},
         {"at", Time(row, "at")},
         {"action", Text(row, "action")},
         {"operator", Text(row, "operator")},
         {"reason", Text(row, "reason")},
         {"change", epochs
                        ? fmt::format("epoch {} → {}", row.Text("old_epoch"), row.Text("new_epoch"))
                        : ""}});
  }
  ASSIGN_OR_RETURN(auto checkpoints, state::Checkpoints(schema_, group).List(session));
  if (!checkpoints.empty()) record.checkpoint_at = checkpoints.front().taken_at;
  if (checkpoints.size() > kMaxCheckpoints) checkpoints.resize(kMaxCheckpoints);
  part["checkpoints"] = json::array();
  for (const state::Checkpoint& checkpoint : checkpoints) {
    part["checkpoints"].push_back(
        {{"number", checkpoint.number},
         {"snapshot", checkpoint.snapshot},
         {"taken_at", FormatTimestamp(checkpoint.taken_at)},
         {"epoch", checkpoint.epoch},
         {"expires_at",
          checkpoint.expires_at ? json(FormatTimestamp(*checkpoint.expires_at)) : json(nullptr)}});
  }
  return absl::OkStatus();
}

}  // namespace lockstep::runner
