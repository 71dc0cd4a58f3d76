#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/print.h"
#include "ctl/group/runner_context.h"
#include "operations/gap_preview.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/connection.h"
#include "projections/declare/group_file.h"
#include "projections/plan/table_check.h"
#include "projections/tools/ddl.h"
#include "projections/tools/explain.h"

// lockstepctl projection check|ddl|explain|accept: a group's file, before the runner reads it.
namespace lockstep::ctl {
namespace {

using projections::GroupDeclaration;
using projections::GroupPlan;
using projections::Mismatch;

struct ProjectionOptions {
  std::string file, event_file, state_schema;
};

absl::StatusOr<GroupPlan> Load(const ProjectionOptions& options,
                               GroupDeclaration* whole = nullptr) {
  GroupDeclaration declaration;
  if (whole == nullptr) whole = &declaration;
  return projections::LoadPlan(
      options.file, {.table_suffix = "", .state_schema = options.state_schema, .code = {}}, whole);
}

// The lines of a loader's status: file:line:column: what.
std::vector<Mismatch> Mistakes(const absl::Status& status) {
  std::vector<Mismatch> found;
  for (const std::string& line : SplitList(MessageOf(status), '\n')) {
    const size_t colon = line.find(": ");
    const bool placed = colon != std::string::npos;
    found.push_back({placed ? line.substr(0, colon) : "", placed ? line.substr(colon + 2) : line});
  }
  return found;
}

Json MismatchJson(const Mismatch& mismatch) {
  return {{"place", mismatch.place}, {"what", mismatch.what}};
}

absl::Status Report(const Context& context, const ProjectionOptions& options,
                    const std::vector<Mismatch>& found, bool with_database) {
  const Json answer = {{"file", options.file},
                       {"ok", found.empty()},
                       {"database_checked", with_database},
                       {"mismatches", ListOf(found, MismatchJson)}};
  RETURN_IF_ERROR(context.Answer(answer, [&] {
    for (const Mismatch& mismatch : found) Print("{}: {}\n", mismatch.place, mismatch.what);
    if (!found.empty()) return;
    Print("{}: {}\n", options.file,
          with_database ? "fits its descriptors and its tables"
                        : "fits its descriptors (tables: give --database to check)");
  }));
  if (found.empty()) return absl::OkStatus();
  return FailedPrecondition("{} mismatch{} in {}", found.size(), found.size() == 1 ? "" : "es",
                            options.file);
}

absl::Status Check(const Context& context, const ProjectionOptions& options) {
  const auto plan = Load(options);
  if (!plan.ok()) return Report(context, options, Mistakes(plan.status()), false);
  ASSIGN_OR_RETURN(const std::string database, context.Database());
  if (database.empty()) return Report(context, options, {}, false);
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(auto found, projections::FindMismatches(*plan, *connection));
  if (options.state_schema.empty()) {
    // Where tombstones live is the runner's to say; the declaration is not wrong without it.
    std::erase_if(found, [](const Mismatch& mismatch) {
      return mismatch.what.find("needs state_schema") != std::string::npos;
    });
  }
  return Report(context, options, found, true);
}

absl::Status Ddl(const Context& context, const ProjectionOptions& options) {
  ASSIGN_OR_RETURN(const GroupPlan plan, Load(options));
  const std::string ddl = projections::CreateTables(plan);
  return context.Answer({{"file", options.file}, {"ddl", ddl}}, [&] { Print("{}", Lines{ddl}); });
}

Json RowJson(const projections::ExplainedRow& row) {
  Json json = {{"projection", row.projection},
               {"table", row.table},
               {"operation", row.operation},
               {"key", Json::object()},
               {"columns", Json::object()}};
  for (const auto& [column, value] : row.key) json["key"][column] = value;
  for (const auto& [column, value] : row.columns) json["columns"][column] = OrNull(value);
  json["absent"] = row.absent;
  if (row.guard.has_value()) {
    json["guard"] = row.guard->verdict;
    if (!row.guard->why.empty()) json["why"] = row.guard->why;
    json["stored_version"] = OrNull(row.guard->stored_version);
    json["stored_deleted"] = row.guard->stored_deleted;
  }
  return json;
}

std::string InWords(const projections::GuardVerdict& guard) {
  const std::string stored = guard.stored_version.has_value()
                                 ? fmt::format("version {} is stored{}", *guard.stored_version,
                                               guard.stored_deleted ? " (deleted)" : "")
                                 : "nothing is stored";
  if (guard.verdict == "apply") return stored + ": would be written";
  if (guard.verdict == "superseded") return stored + ": superseded, would change nothing";
  if (guard.verdict == "conflict") {
    return stored + ": a conflict (a forked or restored source), would be a dead letter";
  }
  if (guard.verdict == "foreign") {
    return fmt::format("the row belongs to the aggregate {}, would be a dead letter", guard.why);
  }
  if (guard.verdict == "count") return "would be counted, unless the inbox has the event";
  return fmt::format("would be a dead letter: {}", guard.why);
}

void PrintExplained(const projections::ExplainedRow& row) {
  Print("  {} {} ({})\n", row.operation, row.table, row.projection);
  for (const auto& [column, value] : row.key) Print("    key {} = {}\n", column, value);
  for (const auto& [column, value] : row.columns) {
    Print("    {} {} {}\n", column, row.operation == "increment" ? "+=" : "=",
          value.value_or("NULL"));
  }
  if (!row.absent.empty()) {
    Print("    absent: {} ({})\n", fmt::join(row.absent, ", "),
          row.operation == "replace" ? "NULL or the column's default" : "stays as it is");
  }
  if (row.guard.has_value()) Print("    guard: {}\n", InWords(*row.guard));
}

// How the runner treats gaps and poison: as its configuration says, where --config names it, else
// as the group's file does.
absl::StatusOr<runner::BatchRules> RulesOf(const Context& context,
                                           const GroupDeclaration& declaration) {
  if (const auto configured = ReadRunner(context); configured.ok()) {
    for (const runner::ConfiguredGroup& group : configured->groups) {
      if (group.options.name == declaration.name.value()) return group.options.batch_rules();
    }
  }
  ASSIGN_OR_RETURN(const runner::GroupOptions options, runner::OptionsOf(declaration));
  return options.batch_rules();
}

absl::Status Explain(const Context& context, const ProjectionOptions& options) {
  GroupDeclaration declaration;
  ASSIGN_OR_RETURN(GroupPlan plan, Load(options, &declaration));
  const projections::GroupProjector projector(std::move(plan));
  ASSIGN_OR_RETURN(const auto events, projections::ReadEventFile(options.event_file));
  std::unique_ptr<postgres::Connection> connection;
  std::optional<projections::GuardPreview> guards;
  std::optional<operations::GapPreview> gaps;
  ASSIGN_OR_RETURN(const std::string database, context.Database());
  if (!database.empty()) {
    ASSIGN_OR_RETURN(connection, context.Connect());
    // A session that could not write if it wanted to.
    RETURN_IF_ERROR(connection->Run("SET default_transaction_read_only = on"));
    ASSIGN_OR_RETURN(auto opened, projections::GuardPreview::Open(projector.plan(), *connection));
    guards = std::move(opened);
    if (guards->knows_the_group()) {
      ASSIGN_OR_RETURN(const runner::BatchRules rules, RulesOf(context, declaration));
      ASSIGN_OR_RETURN(auto looked, operations::GapPreview::Open(
                                        projector, rules, state::Schema(options.state_schema),
                                        declaration.name, *connection));
      gaps.emplace(std::move(looked));
    }
  }
  Json list = Json::array();
  for (const projections::Event& event : events) {
    auto rows = projections::Explain(projector, event);
    if (!rows.ok()) {
      return InvalidArgument("{} {} version {} is poison: {}", event.event_type, event.aggregate.id,
                             event.version, MessageOf(rows.status()));
    }
    bool seen = false;
    std::optional<std::string> waits;
    if (guards.has_value()) {
      ASSIGN_OR_RETURN(seen, guards->Seen(event));
      if (!seen && gaps) {
        ASSIGN_OR_RETURN(waits, gaps->WhyItWaits(event));
      }
      // One that is seen or waits changes nothing now, whatever its rows' guards would say.
      if (!seen && !waits) {
        for (auto& row : *rows) RETURN_IF_ERROR(guards->Judge(event, &row));
      }
    }
    list.push_back({{"event_type", event.event_type},
                    {"aggregate_id", event.aggregate.id},
                    {"version", event.version},
                    {"rows", ListOf(*rows, RowJson)}});
    if (guards.has_value()) list.back()["seen"] = seen;
    if (gaps.has_value()) list.back()["waits"] = OrNull(waits);
    if (context.json) continue;
    Print("{} {} version {}{}\n", event.event_type, event.aggregate.id, event.version,
          rows->empty() ? ": ignored"
          : seen        ? ": the inbox has it, would be skipped"
          : waits       ? fmt::format(": would be parked, for {}; then", *waits)
                        : "");
    for (const auto& row : *rows) PrintExplained(row);
  }
  return context.Answer(list, [] { Print("Nothing was written.\n"); });
}

absl::Status Accept(const Context& context, const ProjectionOptions& options) {
  if (options.state_schema.empty()) {
    return InvalidArgument("say in which schema the service's state is: --state-schema NAME");
  }
  ASSIGN_OR_RETURN(const GroupPlan plan, Load(options));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  RETURN_IF_ERROR(context.Confirm(fmt::format(
      "The message fields of group {} are remembered as they are in {} now. Messages of the "
      "old shape that are still in the subscription would be read wrong.",
      plan.group, options.file)));
  RETURN_IF_ERROR(projections::RememberFields(plan, *connection));
  return context.Answer({{"group", plan.group}, {"fields", plan.fields.size()}},
                        [&] { Print("{} uses of fields remembered\n", plan.fields.size()); });
}

}  // namespace

void AddProjection(const Command& program) {
  const Command projection = program.AddGroup(
      "projection", "check a group's file, print its tables, explain what an event would do");
  const auto o = std::make_shared<ProjectionOptions>();
  const auto add = [&](const char* name, const char* help, auto run) {
    return projection.Add(name, help, o, run)
        .With({{"file", &o->file, "the group's YAML file", Option::kRequired},
               {"--state-schema", &o->state_schema, "the schema of the service's state"}});
  };
  add("check", "compare the file with its descriptors and, given a database, with the live tables",
      Check);
  add("ddl", "print the CREATE TABLE of every projection", Ddl);
  add("explain",
      "print what an event would write and, given a database, what the version guard would say; "
      "writes nothing",
      Explain)
      .With({{"event", &o->event_file, "a JSON file with the event, or a list of them",
              Option::kRequired}});
  add("accept", "take renumbered or retyped message fields as they are now", Accept)
      .Changes(Command::kNoReason);
}

}  // namespace lockstep::ctl
