#include "fuzz/mapped.h"

#include <filesystem>

#include "fuzz/fuzz_target.h"
#include "platform/status.h"
#include "projections/declare/group_file.h"
#include "projections/write/group_projector.h"

namespace lockstep::fuzz {
namespace {

using projections::Cell;
using projections::CellState;
using projections::GroupPlan;

GroupPlan Load(const std::string& name) {
  projections::GroupDeclaration declaration;
  auto plan = projections::LoadPlan(Folder() + "/" + name, {}, &declaration);
  if (!plan.ok()) Broken(std::string(MessageOf(plan.status())).c_str(), name.c_str(), 0);
  return *std::move(plan);
}

void Check(const projections::MappedChange& change) {
  LOCKSTEP_HOLDS(change.text.find('\0') == std::string::npos);
  for (const Cell& cell : change.cells) {
    LOCKSTEP_HOLDS(cell.state != CellState::kText || cell.offset + cell.size <= change.text.size());
  }
  for (const auto& row : change.rows) LOCKSTEP_HOLDS(row.first_cell < change.cells.size());
}

}  // namespace

// Beside the program (bin/ or tests/), in the folder fuzz/ of the build.
std::string Folder() {
  static const std::string folder =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "fuzz")
          .string();
  return folder;
}

void MapAndCheck(const std::string& payload, const std::string& content_type) {
  static const GroupPlan& plain = *new GroupPlan(Load("mapping.yaml"));
  static const GroupPlan& enveloped = *new GroupPlan(Load("enveloped.yaml"));
  projections::Event event;
  event.event_type = "fuzz.All";
  event.aggregate = {std::nullopt, "thing", "1"};
  event.version = 1;
  event.content_type = content_type;
  event.payload = payload;
  for (const GroupPlan* plan : {&plain, &enveloped}) {
    projections::MappedChange change;
    const absl::Status mapped = plan->mappings.Map(event, &change);
    if (mapped.ok()) Check(change);
  }
}

}  // namespace lockstep::fuzz
