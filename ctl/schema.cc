#include <fmt/format.h>

#include <algorithm>

#include "ctl/command.h"
#include "platform/status.h"
#include "projections/decode/descriptors.h"
#include "projections/tools/schema_diff.h"

namespace lockstep::ctl {
namespace {

struct Options {
  std::string before;
  std::string after;
};

absl::Status Diff(const Context& context, const Options& options) {
  projections::Descriptors before;
  projections::Descriptors after;
  RETURN_IF_ERROR(before.LoadFile(options.before));
  RETURN_IF_ERROR(after.LoadFile(options.after));
  const auto changes = projections::DiffSchemas(before, after);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& change : changes) {
    list.push_back(
        {{"breaking", change.breaking}, {"element", change.element}, {"what", change.what}});
  }
  const auto breaking = std::count_if(changes.begin(), changes.end(),
                                      [](const auto& change) { return change.breaking; });
  context.Answer({{"breaking", breaking}, {"changes", list}}, [&] {
    for (const auto& change : changes) {
      fmt::print("{:<10} {}: {}\n", change.breaking ? "breaking" : "compatible", change.element,
                 change.what);
    }
    if (changes.empty()) fmt::print("no change\n");
  });
  if (breaking == 0) return absl::OkStatus();
  return FailedPrecondition("{} breaking change{}: give the topic a new version, or take {} back",
                            breaking, breaking == 1 ? "" : "s", breaking == 1 ? "it" : "them");
}

}  // namespace

void AddSchema(const Command& program) {
  const auto options = std::make_shared<Options>();  // outlives this function with the callback
  program.AddGroup("schema", "look at descriptor sets")
      .Add("diff", "list compatible and breaking changes; ends with 1 when something breaks",
           [options](const Context& c) { return Diff(c, *options); })
      .Required("old", options->before, "descriptor set before")
      .Required("new", options->after, "descriptor set after");
}

}  // namespace lockstep::ctl
