#include "ctl/reset_text.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "platform/duration.h"
#include "projections/write/group_projector.h"

namespace lockstep::ctl {
namespace {

using Json = nlohmann::ordered_json;

// What an overwriting replay does to the tables: replaced rows are written again, counted and
// merged ones would not come out the same.
struct Overwriting {
  std::vector<std::string> replaced, counted, merged;
};
Overwriting OverwritingOf(const projections::Projector& projector) {
  Overwriting tables;
  const auto* declared = dynamic_cast<const projections::GroupProjector*>(&projector);
  if (declared == nullptr) return {.replaced = projector.Tables(), .counted = {}, .merged = {}};
  for (const projections::Table& table : declared->plan().tables) {
    auto& list = table.counting ? tables.counted : table.merges ? tables.merged : tables.replaced;
    list.push_back(table.name.ToString());
  }
  return tables;
}

void PrintOverwriting(const Overwriting& tables) {
  if (tables.replaced.empty()) {
    fmt::print("read model  stays; only events that it has not seen are applied\n");
  } else {
    fmt::print("read model  stays; what comes again overwrites its own version in {}\n",
               fmt::join(tables.replaced, ", "));
  }
  if (!tables.merged.empty()) {
    fmt::print("            nothing is merged twice into {}\n", fmt::join(tables.merged, ", "));
  }
  if (!tables.counted.empty()) {
    fmt::print("            nothing is counted twice in {}\n", fmt::join(tables.counted, ", "));
  }
}

}  // namespace

void PrintPlan(const std::string& group, const ResetPlan& plan, offsets::ResetMode mode,
               const projections::Projector& projector) {
  fmt::print("group       {}\nfrom        {} (epoch {})\nto          {}\n", group,
             plan.offset ? FormatTimestamp(plan.offset->position.publish_time)
                         : "nothing in this epoch yet",
             plan.before.epoch, plan.seek.ToString());
  fmt::print("redelivery  {}\n",
             plan.redelivered < 0 ? "what was not acked when the snapshot was taken, and all since"
                                  : fmt::format("about {} events", plan.redelivered));
  fmt::print("retention   {}\n",
             plan.earliest ? fmt::format("reaches back to {}", FormatTimestamp(*plan.earliest))
                           : "could not be read: no right to");
  if (mode == offsets::ResetMode::kKeep) fmt::print("read model  stays; nothing applies twice\n");
  if (mode == offsets::ResetMode::kOverwrite) PrintOverwriting(OverwritingOf(projector));
  for (const auto& [table, rows] : plan.emptied)
    fmt::print("empties     {} ({} rows)\n", table, rows);
}

Json PlanJson(const std::string& group, const ResetPlan& plan, offsets::ResetMode mode,
              const projections::Projector& projector) {
  Json emptied = Json::array();
  for (const auto& [table, rows] : plan.emptied)
    emptied.push_back({{"table", table}, {"rows", rows}});
  Json answer = {
      {"group", group},
      {"epoch", plan.before.epoch},
      {"from",
       plan.offset ? Json(FormatTimestamp(plan.offset->position.publish_time)) : Json(nullptr)},
      {"to", plan.seek.ToString()},
      {"mode", Name(mode)},
      {"redelivered", plan.redelivered < 0 ? Json(nullptr) : Json(plan.redelivered)},
      {"earliest", plan.earliest ? Json(FormatTimestamp(*plan.earliest)) : Json(nullptr)},
      {"empties", emptied}};
  if (mode == offsets::ResetMode::kOverwrite) {
    answer["overwrites"] = OverwritingOf(projector).replaced;
  }
  return answer;
}

}  // namespace lockstep::ctl
