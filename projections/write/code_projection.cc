#include <algorithm>
#include <exception>
#include <utility>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "projections/write/group_projector.h"
#include "projections/write/table_writer.h"

namespace lockstep::projections {
namespace {

// User code that throws becomes a status, not a dead thread.
template <typename Call>
absl::Status Fenced(const Projection& projection, bool in_transaction, const Call& call) {
  std::string what;
  try {
    return call();
  } catch (const std::exception& e) {
    what = fmt::format("projection {} threw: {}", projection.Name(), e.what());
  } catch (...) {
    what =
        fmt::format("projection {} threw something that is no std::exception", projection.Name());
  }
  if (in_transaction) return postgres::SqlError("P0001", what);
  return InvalidArgument("{}", what);
}

// For what is more than a row replaced: a snapshot may come again at the same version.
absl::Status CheckTakes(const Projection& projection, const Event& event) {
  if (!event.is_snapshot() || projection.TakesSnapshots()) return absl::OkStatus();
  return FailedPrecondition(
      "projection {} takes events of type '{}' and no snapshots: it does more with them than "
      "replace rows. Have its TakesSnapshots() answer true once it knows what to do with one, or "
      "its Wants() false",
      projection.Name(), event.event_type);
}

class Sink : public RowSink {
 public:
  Sink(const GroupPlan& plan, const CodeProjection& code, const Event& event, MappedChange* change)
      : plan_(plan), code_(code), event_(event), change_(*change) {}

  absl::Status Replace(size_t table, const std::vector<std::string>& key,
                       const Values& values) override {
    return Add(Operation::kReplace, table, key, values);
  }
  absl::Status Merge(size_t table, const std::vector<std::string>& key,
                     const Values& values) override {
    return Add(Operation::kMerge, table, key, values);
  }
  absl::Status Increment(size_t table, const std::vector<std::string>& key,
                         const Values& deltas) override {
    return Add(Operation::kIncrement, table, key, deltas);
  }
  absl::Status Delete(size_t table, const std::vector<std::string>& key) override {
    return Add(Operation::kDelete, table, key, {});
  }

 private:
  absl::Status Add(Operation operation, size_t index, const std::vector<std::string>& key,
                   const Values& values) {
    if (index >= code_.tables.size()) {
      return InvalidArgument("projection {} has no table {}", code_.projection->Name(), index);
    }
    const CodeTable& declared = code_.tables[index];
    const Table& table = plan_.tables[code_.first_table + index];
    if (operation != Operation::kReplace) RETURN_IF_ERROR(CheckTakes(*code_.projection, event_));
    if (const std::string wrong = Refusal(operation, table); !wrong.empty()) {
      return InvalidArgument("projection {}, table {}: {}", code_.projection->Name(),
                             declared.table, wrong);
    }
    if (key.size() != table.key.size()) {
      return InvalidArgument("projection {}: table {} has {} key columns, not {}",
                             code_.projection->Name(), declared.table, table.key.size(),
                             key.size());
    }
    RowChange row;
    row.table = code_.first_table + static_cast<uint32_t>(index);
    // What stands for an aggregate that is gone goes too.
    const bool gone = event_.absent && operation == Operation::kReplace;
    row.operation = gone ? Operation::kDelete : operation;
    row.first_cell = static_cast<uint32_t>(change_.cells.size());
    change_.cells.resize(row.first_cell + table.cells());
    for (size_t i = 0; i < key.size(); ++i) Put(row.first_cell + i, key[i]);
    for (const auto& [column, value] : gone ? Values() : values) {
      const auto found = std::ranges::find(table.values, column, &Column::name);
      if (found == table.values.end()) {
        return InvalidArgument("projection {}: table {} was declared without column {}",
                               code_.projection->Name(), declared.table, column);
      }
      Put(row.first_cell + key.size() + (found - table.values.begin()), value);
    }
    change_.rows.push_back(row);
    return absl::OkStatus();
  }

  static std::string Refusal(Operation operation, const Table& table) {
    if ((operation == Operation::kIncrement) != table.counting) {
      return table.counting ? "a counting table takes increments alone"
                            : "a versioned table takes no increments";
    }
    if (operation == Operation::kMerge && !table.merges) return "it was declared without merges";
    if (operation == Operation::kDelete && !table.deletes) return "it was declared without deletes";
    return "";
  }

  void Put(size_t cell, const Text& value) {
    if (!value.has_value()) {
      change_.cells[cell] = {CellState::kNull, 0, 0};
      return;
    }
    change_.cells[cell] = {CellState::kText, static_cast<uint32_t>(change_.text.size()),
                           static_cast<uint32_t>(value->size())};
    change_.text += *value;
  }

  const GroupPlan& plan_;
  const CodeProjection& code_;
  const Event& event_;
  MappedChange& change_;
};

std::vector<Column> Columns(const std::vector<std::string>& names) {
  std::vector<Column> columns;
  for (const std::string& name : names) columns.push_back({name, {}});
  return columns;
}

}  // namespace

absl::Status AddCode(std::shared_ptr<const Projection> projection, GroupPlan* plan) {
  CodeProjection code;
  code.first_table = static_cast<uint32_t>(plan->tables.size());
  code.tables = projection->Tables();
  for (const CodeTable& declared : code.tables) {
    ASSIGN_OR_RETURN(postgres::QualifiedName name, postgres::QualifiedName::Parse(declared.table));
    name.name += plan->table_suffix;
    plan->AddTable({.projection = projection->Name(),
                    .place = fmt::format("projection {}", projection->Name()),
                    .name = std::move(name),
                    .key = Columns(declared.key),
                    .values = Columns(declared.columns),
                    .version = declared.version,
                    .updated_at = declared.updated_at,
                    .deleted_at = declared.deleted_at,
                    .aggregate = declared.aggregate,
                    .counting = declared.version.empty(),
                    .merges = declared.merges,
                    .deletes = declared.deletes});
  }
  code.projection = std::move(projection);
  plan->code.push_back(std::move(code));
  return absl::OkStatus();
}

absl::Status MapCode(const GroupPlan& plan, const Event& event, MappedChange* change) {
  for (uint32_t i = 0; i < plan.code.size(); ++i) {
    const CodeProjection& code = plan.code[i];
    const Projection& projection = *code.projection;
    RETURN_IF_ERROR(Fenced(projection, false, [&] {
      if (!projection.Wants(event)) return absl::OkStatus();
      if (const absl::Status takes = CheckTakes(projection, event);
          projection.Writes() && !takes.ok()) {
        return takes;
      }
      change->code.push_back(i);
      if (projection.Writes() && change->event == nullptr) {
        change->event = std::make_unique<Event>(event);
      }
      Sink sink(plan, code, event, change);
      return projection.Map(event, sink);
    }));
  }
  return absl::OkStatus();
}

bool CodeParksOnGap(const GroupPlan& plan, const Event& event) {
  for (const CodeProjection& code : plan.code) {
    const Projection& projection = *code.projection;
    bool parks = false;
    const absl::Status asked = Fenced(projection, false, [&] {
      parks = projection.Wants(event) && projection.ParksOnGap(event);
      return absl::OkStatus();
    });
    if (parks || !asked.ok()) return true;
  }
  return false;
}

absl::Status WriteCode(const GroupPlan& plan, postgres::Transaction& transaction,
                       const std::vector<const Change*>& changes, const ApplyOptions& options,
                       std::vector<Outcome>* outcomes) {
  for (uint32_t i = 0; i < plan.code.size(); ++i) {
    const Projection& projection = *plan.code[i].projection;
    if (!projection.Writes()) continue;
    std::vector<const Event*> events;
    for (size_t at = 0; at < changes.size(); ++at) {
      const auto& change = static_cast<const MappedChange&>(*changes[at]);
      if (std::ranges::find(change.code, i) == change.code.end()) continue;
      // Its SQL has no version guard of ours: a seen event is not shown to it again unless it says
      // that it can tell.
      const bool hidden = Seen(options, at) && !projection.MindsReplays();
      Note(hidden ? Outcome::kSuperseded : Outcome::kApplied, &(*outcomes)[at]);
      if (hidden) continue;
      change.event->replay = Replays(options, at);
      events.push_back(change.event.get());
    }
    if (events.empty()) continue;
    RETURN_IF_ERROR(Fenced(projection, true, [&] {
      return projection.Write(transaction, events, plan.table_suffix);
    }));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::projections
