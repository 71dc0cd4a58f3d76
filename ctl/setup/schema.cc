#include <algorithm>

#include "ctl/command/command.h"
#include "ctl/command/print.h"
#include "platform/status.h"
#include "projections/decode/descriptors.h"
#include "projections/tools/schema_diff.h"

namespace lockstep::ctl {
namespace {

struct SchemaOptions {
  std::string before;
  std::string after;
};

Json ChangeJson(const projections::SchemaChange& change) {
  return {{"breaking", change.breaking}, {"element", change.element}, {"what", change.what}};
}

absl::Status Diff(const Context& context, const SchemaOptions& options) {
  projections::Descriptors before;
  projections::Descriptors after;
  RETURN_IF_ERROR(before.LoadFile(options.before));
  RETURN_IF_ERROR(after.LoadFile(options.after));
  const auto changes = projections::DiffSchemas(before, after);
  const auto breaking = std::count_if(changes.begin(), changes.end(),
                                      [](const auto& change) { return change.breaking; });
  const Json answer = {{"breaking", breaking}, {"changes", ListOf(changes, ChangeJson)}};
  RETURN_IF_ERROR(context.Answer(answer, [&] {
    for (const auto& change : changes) {
      Print("{:<10} {}: {}\n", change.breaking ? "breaking" : "compatible", change.element,
            change.what);
    }
    if (changes.empty()) Print("no change\n");
  }));
  if (breaking == 0) return absl::OkStatus();
  return FailedPrecondition("{} breaking change{}: give the topic a new version, or take {} back",
                            breaking, breaking == 1 ? "" : "s", breaking == 1 ? "it" : "them");
}

}  // namespace

void AddSchema(const Command& program) {
  const auto o = std::make_shared<SchemaOptions>();
  program.AddGroup("schema", "look at descriptor sets")
      .Add("diff", "list compatible and breaking changes; ends with 1 when something breaks", o,
           Diff)
      .With({{"old", &o->before, "descriptor set before", Option::kRequired},
             {"new", &o->after, "descriptor set after", Option::kRequired}});
}

}  // namespace lockstep::ctl
