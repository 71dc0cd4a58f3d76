#include "projections/tools/guard_preview.h"

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "state/events/inbox.h"
#include "state/groups/epochs.h"

namespace lockstep::projections {

using postgres::Params;
using postgres::QuoteIdentifier;

absl::StatusOr<GuardPreview> GuardPreview::Open(const GroupPlan& plan,
                                                postgres::Connection& connection) {
  GuardPreview preview(plan, connection);
  for (const Table& table : plan.tables) {
    ASSIGN_OR_RETURN(LiveTable live, ReadLiveTable(connection, table.name));
    std::vector<std::string> needed;
    for (const Column& column : table.key) needed.push_back(column.name);
    if (!table.counting) needed.push_back(table.version);
    for (const std::string& column : needed) {
      if (live.columns.contains(column)) continue;
      return FailedPrecondition("table {} has no column {}; lockstepctl projection check says more",
                                table.name.ToString(), column);
    }
    preview.live_.push_back(std::move(live));
  }
  if (plan.state_schema.empty()) return preview;
  const state::Schema schema(plan.state_schema);
  const absl::Status there = schema.Check(connection);
  if (absl::IsFailedPrecondition(there)) {
    return FailedPrecondition(
        "schema {} holds no state of a service; name the one that the runner "
        "is configured with (--state-schema)",
        plan.state_schema);
  }
  RETURN_IF_ERROR(there);
  const auto group = state::Epochs(schema, ConsumerGroup(plan.group)).Load(connection);
  if (!group.ok() && !absl::IsNotFound(group.status())) return group.status();
  if (group.ok()) preview.generation_ = group->generation;
  return preview;
}

absl::StatusOr<bool> GuardPreview::Seen(const Event& event) {
  if (!generation_.has_value()) return false;
  const auto seen =
      state::Inbox(state::Schema(plan_->state_schema))
          .Seen(*connection_, static_cast<int>(*generation_), {event.event_id.value()});
  if (seen.ok()) return seen->front();
  // An id that is no uuid can't be in the inbox.
  if (postgres::Classify(seen.status()) == postgres::ErrorClass::kData) return false;
  return seen.status();
}

// Answers one row: the key as one text, the stored version (NULL = none), whether it is deleted,
// its aggregate.
std::string GuardPreview::Query(const Table& table, const LiveTable& live) const {
  std::vector<std::string> inputs;
  std::vector<std::string> joins;
  std::vector<std::string> key;
  for (size_t i = 0; i < table.key.size(); ++i) {
    inputs.push_back(
        fmt::format("${}::text::{} AS k{}", i + 1, live.columns.at(table.key[i].name).type, i));
    joins.push_back(fmt::format("t.{} = k.k{}", QuoteIdentifier(table.key[i].name), i));
    key.push_back(fmt::format("k.k{}", i));
  }
  const std::string key_text =
      key.size() == 1 ? key[0] + "::text" : fmt::format("ROW({})::text", fmt::join(key, ", "));
  const std::string from = fmt::format("FROM (SELECT {}) AS k", fmt::join(inputs, ", "));
  if (table.hard_deletes() && generation_.has_value()) {
    const size_t next = table.key.size() + 1;
    return fmt::format(
        "SELECT {0}, r.version, r.deleted_at IS NOT NULL, r.aggregate\n{1}\n"
        "LEFT JOIN {2}.row_versions AS r ON r.consumer_group = ${3}"
        " AND r.generation = ${4} AND r.projection = ${5} AND r.row_key = {0}",
        key_text, from, QuoteIdentifier(plan_->state_schema), next, next + 1, next + 2);
  }
  return fmt::format("SELECT {}, t.{}, {}, {}\n{}\nLEFT JOIN {} AS t ON {}", key_text,
                     QuoteIdentifier(table.version),
                     table.deleted_at.empty()
                         ? "false"
                         : fmt::format("t.{} IS NOT NULL", QuoteIdentifier(table.deleted_at)),
                     table.aggregate.empty() ? "NULL" : "t." + QuoteIdentifier(table.aggregate),
                     from, table.name.Quoted(), fmt::join(joins, " AND "));
}

absl::Status GuardPreview::JudgeRow(const Event& event, ExplainedRow* row) {
  const Table& table = plan_->tables[row->table_index];
  row->guard.emplace();
  if (table.counting) {
    row->guard->verdict = "count";
    return absl::OkStatus();
  }
  Params params;
  for (const auto& [column, value] : row->key) params.Add(value);
  if (table.hard_deletes() && generation_.has_value()) {
    params.Add(plan_->group).Add(*generation_).Add(table.projection);
  }
  const auto found = connection_->Execute(Query(table, live_[row->table_index]), params);
  if (!found.ok()) {
    if (postgres::Classify(found.status()) != postgres::ErrorClass::kData) return found.status();
    row->guard->verdict = "dead letter";  // the key is no value of its column
    row->guard->why = MessageOf(found.status());
    return absl::OkStatus();
  }
  const auto at = std::make_pair(row->table_index, std::string(found->Text(0, 0)));
  std::optional<Stored> stored;
  if (!found->IsNull(0, 1)) {
    stored = Stored{found->Int(0, 1), found->Bool(0, 2), found->Optional(0, 3)};
  }
  if (const auto written = would_be_.find(at); written != would_be_.end()) stored = written->second;
  if (stored.has_value()) {
    row->guard->stored_version = stored->version;
    row->guard->stored_deleted = stored->deleted;
  }
  std::optional<std::string> own;
  if (!table.aggregate.empty()) own = AggregateKey(event.aggregate);
  if (stored.has_value() && stored->aggregate.has_value() && own.has_value() &&
      stored->aggregate != own) {
    row->guard->verdict = "foreign";
    row->guard->why = *stored->aggregate;
  } else if (!stored.has_value() || stored->version < event.version) {
    row->guard->verdict = "apply";
    would_be_[at] = {event.version, row->operation.ends_with("delete"), own};
  } else {
    row->guard->verdict = stored->version == event.version ? "conflict" : "superseded";
  }
  return absl::OkStatus();
}

absl::Status GuardPreview::Judge(const Event& event, std::vector<ExplainedRow>* rows) {
  for (ExplainedRow& row : *rows) RETURN_IF_ERROR(JudgeRow(event, &row));
  return absl::OkStatus();
}

}  // namespace lockstep::projections
