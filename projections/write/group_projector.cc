#include "projections/write/group_projector.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "projections/plan/table_check.h"
#include "projections/write/table_writer.h"

namespace lockstep::projections {
namespace {

template <typename Test>
bool AnyHandler(const EventMapping& mapping, const Test& test) {
  return std::ranges::any_of(mapping.routes, [&](const Route& route) {
    return std::ranges::any_of(route.handlers, test);
  });
}

}  // namespace

GroupProjector::GroupProjector(GroupPlan plan)
    : plan_(std::move(plan)),
      owned_(std::any_of(plan_.tables.begin(), plan_.tables.end(),
                         [](const Table& table) { return !table.aggregate.empty(); })),
      functions_(plan_),
      plans_(plan_.tables.size()) {}

absl::StatusOr<std::unique_ptr<Change>> GroupProjector::Map(const Event& event) const {
  auto change = std::make_unique<MappedChange>();
  change->version = event.version;
  change->snapshot = event.is_snapshot();
  change->overwrite = event.overwrite;
  change->absent = event.absent;
  if (owned_) change->aggregate = AggregateKey(event.aggregate);
  RETURN_IF_ERROR(MapCode(plan_, event, change.get()));
  // An event that only C++ wants need not be declared in the file.
  if (change->code.empty() || plan_.mappings.events.contains(event.event_type)) {
    RETURN_IF_ERROR(plan_.mappings.Map(event, change.get()));
  }
  return change;
}

absl::StatusOr<std::vector<Outcome>> GroupProjector::Apply(
    postgres::Transaction& transaction, const std::vector<const Change*>& changes,
    const ApplyOptions& options) const {
  std::vector<Outcome> outcomes(changes.size(), Outcome::kIgnored);
  std::vector<std::vector<Step>> steps(plan_.tables.size());
  for (uint32_t event = 0; event < changes.size(); ++event) {
    const auto& change = static_cast<const MappedChange&>(*changes[event]);
    for (const RowChange& row : change.rows) steps[row.table].push_back({&change, &row, event});
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].empty()) continue;
    ASSIGN_OR_RETURN(const auto plan, PlanOf(transaction, i));
    const WriteContext context{transaction, plan_.tables[i], *plan, plan_.group, options};
    const absl::Status written = plan_.tables[i].counting
                                     ? WriteCounting(context, steps[i], &outcomes)
                                     : WriteVersioned(context, steps[i], &outcomes);
    if (written.ok()) continue;
    if (postgres::Classify(written) == postgres::ErrorClass::kConfiguration) {
      std::scoped_lock lock(mu_);
      plans_[i] = nullptr;
    }
    return written;
  }
  RETURN_IF_ERROR(WriteCode(plan_, transaction, changes, options, &outcomes));
  if (!plan_.mappings.calls.empty()) {
    RETURN_IF_ERROR(functions_.Run(transaction, changes, options, &outcomes));
    NoteOutside(changes, options, &outcomes);
  }
  return outcomes;
}

// Endpoints are called by the runner, once all of this is written.
void GroupProjector::NoteOutside(const std::vector<const Change*>& changes,
                                 const ApplyOptions& options,
                                 std::vector<Outcome>* outcomes) const {
  for (size_t at = 0; at < changes.size(); ++at) {
    for (const uint32_t call : changes[at]->calls_outside()) {
      const bool skipped = Replays(options, at) && !plan_.mappings.calls[call].replays;
      Note(skipped ? Outcome::kSuperseded : Outcome::kApplied, &(*outcomes)[at]);
    }
  }
}

std::vector<std::string> GroupProjector::TablesOfFunctions() const {
  std::vector<std::string> names;
  for (const Call& call : plan_.mappings.calls) {
    names.insert(names.end(), call.tables.begin(), call.tables.end());
  }
  return names;
}

bool GroupProjector::MindsReplays() const {
  return !plan_.mappings.calls.empty() ||
         std::ranges::any_of(plan_.code, [](const CodeProjection& code) {
           return code.projection->Writes() && code.projection->MindsReplays();
         });
}

std::string GroupProjector::NeedsEachEvent() const {
  for (const Table& table : plan_.tables) {
    if (!table.counting) continue;
    return fmt::format("{} counts each event once, whenever it comes", table.name.ToString());
  }
  if (!plan_.mappings.calls.empty()) {
    return fmt::format("handler {} is called once for each", plan_.mappings.calls[0].handler);
  }
  for (const CodeProjection& code : plan_.code) {
    if (code.projection->Writes()) return "a projection in C++ writes with SQL of its own";
  }
  return "";
}

absl::StatusOr<std::shared_ptr<const TablePlan>> GroupProjector::PlanOf(
    postgres::Transaction& transaction, size_t table) const {
  {
    std::scoped_lock lock(mu_);
    if (plans_[table] != nullptr) return plans_[table];
  }
  ASSIGN_OR_RETURN(const LiveTable live, ReadLiveTable(transaction, plan_.tables[table].name));
  ASSIGN_OR_RETURN(auto plan, MakePlan(plan_.tables[table], live, plan_.state_schema));
  std::scoped_lock lock(mu_);
  plans_[table] = plan;
  return plan;
}

bool GroupProjector::ParksOnGap(const Event& event) const {
  if (CodeParksOnGap(plan_, event)) return true;
  const auto found = plan_.mappings.events.find(event.event_type);
  return found != plan_.mappings.events.end() &&
         AnyHandler(found->second, [&](const Handler& handler) {
           return handler.parks_on_gap && handler.Takes(event.schema_version);
         });
}

// (What projections in C++ make of it, nobody knows.)
bool GroupProjector::LeavesNothing(const Event& event) const {
  const auto found = plan_.mappings.events.find(event.event_type);
  if (found == plan_.mappings.events.end() || !plan_.code.empty()) return false;
  const auto deletes_from = [&](uint32_t table) {
    const auto route = std::ranges::find(found->second.routes, table, &Route::table);
    if (route == found->second.routes.end()) return false;
    const auto first = std::ranges::find_if(route->handlers, [&](const Handler& handler) {
      return handler.Takes(event.schema_version);
    });
    return first != route->handlers.end() && first->operation == Operation::kDelete &&
           first->when.empty();
  };
  bool any = false;
  for (uint32_t table = 0; table < plan_.tables.size(); ++table) {
    const bool deletes = deletes_from(table);
    if (plan_.tables[table].merges && !deletes) return false;
    any = any || deletes;
  }
  return any;
}

bool GroupProjector::MayPark() const {
  if (!plan_.code.empty()) return true;  // it decides event by event
  return std::ranges::any_of(plan_.mappings.events, [](const auto& event) {
    return AnyHandler(event.second, [](const Handler& handler) { return handler.parks_on_gap; });
  });
}

absl::Status GroupProjector::Check(postgres::Connection& connection) const {
  {
    std::scoped_lock lock(mu_);
    plans_.assign(plans_.size(), nullptr);
  }
  functions_.Forget();
  return CheckGroup(plan_, connection);
}

std::vector<std::string> GroupProjector::Columns() const {
  std::vector<std::string> columns;
  for (const Table& table : plan_.tables) {
    std::string name = table.name.ToString();
    if (name.ends_with(plan_.table_suffix)) {
      name.resize(name.size() - plan_.table_suffix.size());
    }
    const auto add = [&](const std::string& column) {
      if (!column.empty()) columns.push_back(name + "." + column);
    };
    for (const Column& column : table.key) add(column.name);
    for (const Column& column : table.values) add(column.name);
    for (const auto& column :
         {table.version, table.updated_at, table.deleted_at, table.aggregate}) {
      add(column);
    }
  }
  return columns;
}

std::vector<std::string> GroupProjector::Tables() const {
  std::vector<std::string> names;
  for (const Table& table : plan_.tables) names.push_back(table.name.ToString());
  for (const CodeProjection& code : plan_.code) {
    for (const std::string& table : code.projection->OwnTables()) {
      names.push_back(table + plan_.table_suffix);
    }
  }
  return names;
}

}  // namespace lockstep::projections
