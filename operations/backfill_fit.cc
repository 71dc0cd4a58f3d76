#include "operations/backfill_fit.h"

#include <algorithm>
#include <set>

#include "platform/status.h"
#include "projections/decode/takes_snapshots.h"

namespace lockstep::operations {
namespace {

using projections::GroupPlan;
using projections::Handler;
using projections::Route;
using projections::Table;
using publisher::Declaration;

// The tables whose rows the backfill's snapshots replace, by their places among the group's.
std::set<uint32_t> TablesOf(const Declaration& declaration, const GroupPlan& group) {
  std::set<uint32_t> tables;
  for (const Route& route : group.mappings.events.at(declaration.event_type).routes) {
    const bool replaces = std::ranges::any_of(route.handlers, [&](const Handler& handler) {
      return handler.Takes(declaration.schema_version) &&
             handler.operation == projections::Operation::kReplace;
    });
    if (replaces) tables.insert(route.table);
  }
  return tables;
}

}  // namespace

absl::Status CheckFits(const Declaration& declaration, const GroupPlan& group,
                       runner::Baseline baseline) {
  const absl::Status taken =
      TakesSnapshots(group.mappings, declaration.event_type, declaration.schema_version);
  if (!taken.ok()) {
    return FailedPrecondition("group {} does not take backfill {}: {}", group.group,
                              declaration.name, MessageOf(taken));
  }
  const std::set<uint32_t> tables = TablesOf(declaration, group);
  if (tables.empty()) {
    return FailedPrecondition(
        "group {} does not take backfill {}: no projection maps {} (schema version {}) by replace",
        group.group, declaration.name, declaration.event_type, declaration.schema_version);
  }
  if (baseline == runner::Baseline::kSnapshot) return absl::OkStatus();
  for (const uint32_t index : tables) {
    const Table& table = group.tables[index];
    if (!table.merges) continue;
    return FailedPrecondition(
        "projection {} merges, and an event that comes before its row's snapshot would leave half "
        "a row: write `baseline: snapshot` into the settings of group {} and restart its runners",
        table.projection, group.group);
  }
  return absl::OkStatus();
}

absl::Status CheckFill(const std::vector<Declaration>& declarations, const GroupPlan& group) {
  std::set<uint32_t> filled;
  for (const Declaration& declaration : declarations) {
    RETURN_IF_ERROR(CheckFits(declaration, group, runner::Baseline::kSnapshot));
    filled.merge(TablesOf(declaration, group));
  }
  for (uint32_t i = 0; i < group.tables.size(); ++i) {
    const Table& table = group.tables[i];
    if (table.counting) {
      return FailedPrecondition(
          "{} counts (projection {}), and rows don't say what was counted already: a backfill "
          "can't "
          "fill it. Rebuild the group from events (--from earliest), or give the projection a "
          "group "
          "of its own",
          table.name.ToString(), table.projection);
    }
    if (!filled.contains(i)) {
      return FailedPrecondition(
          "nothing would fill {} (projection {}), and all tables of a group are swapped together: "
          "name the backfill of its rows too, with another --declaration",
          table.name.ToString(), table.projection);
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep::operations
