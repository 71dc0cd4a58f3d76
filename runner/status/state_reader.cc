#include "runner/status/state_reader.h"

#include <fmt/format.h>

#include "platform/duration.h"
#include "platform/status.h"
#include "state/events/dead_letters.h"
#include "state/events/key_states.h"
#include "state/groups/overview.h"
#include "state/groups/verifications.h"
#include "state/positions/checkpoints.h"
#include "state/positions/offsets.h"
#include "web/document.h"

namespace lockstep::runner {
namespace {

using nlohmann::json;
using postgres::Row;

// What a page shows at most.
constexpr int kMaxLanes = 500;
constexpr int kMaxKeys = 20;
constexpr int kMaxLetters = 50;
constexpr int kMaxHistory = 20;
constexpr int kMaxCauses = 12;
constexpr int kMaxInstances = 50;
constexpr size_t kMaxCheckpoints = 10;

// The columns of a row that the document has under their own names, as JSON: NULL as null, times
// as RFC 3339.
struct Columns {
  std::vector<const char*> texts, numbers, times;
};

json Fields(const Row& row, const Columns& columns) {
  json fields = json::object();
  const auto add = [&](const char* name, const auto& value) {
    fields[name] = value ? json(*value) : json(nullptr);
  };
  for (const char* name : columns.texts) add(name, row.OptionalText(name));
  for (const char* name : columns.numbers) add(name, row.OptionalInt(name));
  for (const char* name : columns.times) {
    fields[name] = web::TimeOrNull(row.OptionalTime(name).value_or(WallTime()));
  }
  return fields;
}

const Columns kOffset = {.texts = {"subscription", "message_id", "updated_by"},
                         .numbers = {"epoch", "lag_ms"},
                         .times = {"publish_time", "updated_at"}};
const Columns kLaneOffset = {.texts = {"subscription", "message_id", "updated_by", "instance"},
                             .numbers = {"epoch", "lag_ms", "lane"},
                             .times = {"publish_time", "updated_at"}};
const Columns kParkedKey = {.texts = {"first_event", "code"},
                            .numbers = {"waits_for", "dead_letter", "first_parked"},
                            .times = {"since"}};
const Columns kDeadLetter = {
    .texts = {"event_id", "message_id", "ordering_key", "event_type", "code", "reason", "state"},
    .numbers = {"id", "version", "attempts"},
    .times = {"dead_at", "publish_time"}};
const Columns kCause = {.texts = {"code", "reason"}, .numbers = {}, .times = {"newest_at"}};
const Columns kInstance = {.texts = {"instance", "address", "version", "state"},
                           .numbers = {},
                           .times = {"started_at", "seen_at"}};
const Columns kAudit = {
    .texts = {"action", "operator", "role", "reason"}, .numbers = {"id"}, .times = {"at"}};

const Columns kVerification = {.texts = {"backfill", "projection", "last_error", "owner"},
                               .numbers = {"rows", "pass_rows", "undecided", "failures"},
                               .times = {"began_at", "passed_at", "created_at"}};
constexpr const char* kDifferenceClasses[] = {"missing", "behind",  "ghost",
                                              "ahead",   "content", "unlisted"};

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

absl::Status ReadOffsets(postgres::Connection& session, const state::Schema& schema,
                         const ConsumerGroup& group, GroupRecord& record) {
  json& part = record.part;
  const state::Offsets offsets(schema);
  ASSIGN_OR_RETURN(const auto offset, offsets.OfGroup(session, group));
  if (!offset.empty()) part["offset"] = Fields(offset[0], kOffset);
  ASSIGN_OR_RETURN(const auto lanes, offsets.OfLanes(session, group, kMaxLanes));
  part["lane_offsets"] = json::array();
  for (const Row row : lanes) part["lane_offsets"].push_back(Fields(row, kLaneOffset));
  return absl::OkStatus();
}

absl::Status ReadParked(postgres::Connection& session, const state::Schema& schema,
                        const ConsumerGroup& group, GroupRecord& record) {
  json& part = record.part;
  const state::KeyStates keys(schema);
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
    json& key = part["parked_keys"].emplace_back(Fields(row, kParkedKey));
    key["key"] = row.Text("aggregate_key");
    key["events"] = row.Int("parked");
    key["why"] = Why(row);
  }
  return absl::OkStatus();
}

absl::Status ReadDeadLetters(postgres::Connection& session, const state::Schema& schema,
                             const ConsumerGroup& group, GroupRecord& record) {
  json& part = record.part;
  const state::DeadLetters desk(schema, group);
  ASSIGN_OR_RETURN(record.replays, desk.CountReplayed(session));
  ASSIGN_OR_RETURN(record.dead_letters, desk.CountOpen(session));
  part["dead_letters_open"] = record.dead_letters;
  part["dead_letters"] = part["dead_causes"] = json::array();
  if (record.dead_letters == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto rows, desk.Newest(session, kMaxLetters));
  for (const Row row : rows) {
    json& letter = part["dead_letters"].emplace_back(Fields(row, kDeadLetter));
    letter["key"] = row.IsNull("aggregate_key") ? json() : json(row.Text("aggregate_key"));
    letter["blocks"] = row.Bool("blocks");
  }
  ASSIGN_OR_RETURN(const auto causes, desk.Causes(session, kMaxCauses));
  for (const Row row : causes) {
    json& cause = part["dead_causes"].emplace_back(Fields(row, kCause));
    cause["count"] = row.Int("letters");
  }
  return absl::OkStatus();
}

absl::Status ReadHistory(postgres::Connection& session, const state::Schema& schema,
                         const ConsumerGroup& group, GroupRecord& record) {
  json& part = record.part;
  ASSIGN_OR_RETURN(const auto audit, state::Overview(schema).History(session, group, kMaxHistory));
  part["history"] = json::array();
  for (const Row row : audit) {
    const bool epochs = !row.IsNull("old_epoch") && !row.IsNull("new_epoch");
    json& entry = part["history"].emplace_back(Fields(row, kAudit));
    entry["change"] =
        epochs ? fmt::format("epoch {} → {}", row.Text("old_epoch"), row.Text("new_epoch")) : "";
  }
  ASSIGN_OR_RETURN(const auto instances,
                   state::Overview(schema).Instances(session, group.value(), kMaxInstances));
  part["instances"] = json::array();
  for (const Row row : instances) part["instances"].push_back(Fields(row, kInstance));
  ASSIGN_OR_RETURN(auto checkpoints, state::Checkpoints(schema, group).List(session));
  if (!checkpoints.empty()) record.checkpoint_at = checkpoints.front().taken_at;
  if (checkpoints.size() > kMaxCheckpoints) checkpoints.resize(kMaxCheckpoints);
  part["checkpoints"] = json::array();
  for (const state::Checkpoint& checkpoint : checkpoints) {
    part["checkpoints"].push_back(
        {{"number", checkpoint.number},
         {"snapshot", checkpoint.snapshot},
         {"taken_at", FormatTimestamp(checkpoint.taken_at)},
         {"epoch", checkpoint.epoch},
         {"expires_at", web::TimeOrNull(checkpoint.expires_at.value_or(WallTime()))}});
  }
  return absl::OkStatus();
}

absl::Status ReadVerifications(postgres::Connection& session, const state::Schema& schema,
                               const ConsumerGroup& group, GroupRecord& record) {
  json& part = record.part["verify"] = json::array();
  ASSIGN_OR_RETURN(const auto rows, state::Verifications(schema, group).List(session));
  for (const Row row : rows) {
    json& table = part.emplace_back(Fields(row, kVerification));
    table["differences"] = json::object();
    for (const char* kind : kDifferenceClasses) {
      table["differences"][kind] = row.Int(kind);
      record.differences[kind] += row.Int(kind);
    }
    const WallTime passed = row.OptionalTime("passed_at").value_or(row.Time("created_at"));
    if (record.verified_tables++ == 0 || passed < record.verified_at) record.verified_at = passed;
    record.rows_verified += row.Int("rows");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GroupRecord> ReadRecord(postgres::Connection& session, const state::Schema& schema,
                                       const ConsumerGroup& group) {
  GroupRecord record;
  for (const auto read :
       {ReadOffsets, ReadParked, ReadDeadLetters, ReadHistory, ReadVerifications}) {
    RETURN_IF_ERROR(read(session, schema, group, record));
  }
  return record;
}

}  // namespace lockstep::runner
