#include <fmt/format.h>

#include "ctl/command.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/connection.h"
#include "projections/declare/group_file.h"
#include "projections/plan/table_check.h"
#include "projections/tools/ddl.h"
#include "projections/tools/explain.h"
#include "projections/tools/guard_preview.h"

// lockstepctl projection check|ddl|explain|accept: a group's file, before the runner reads it.
namespace lockstep::ctl {
namespace {

using projections::GroupDeclaration;
using projections::GroupPlan;
using projections::Mismatch;
using Json = nlohmann::ordered_json;

struct Options {
  std::string file;
  std::string event_file;
  std::string state_schema;
};

absl::StatusOr<GroupPlan> Load(const Options& options) {
  projections::LoadOptions load;
  load.state_schema = options.state_schema;
  GroupDeclaration declaration;
  return projections::LoadPlan(options.file, load, &declaration);
}

// The lines of a loader's status: file:line:column: what.
std::vector<Mismatch> Mistakes(const absl::Status& status) {
  std::vector<Mismatch> found;
  for (const std::string& line : SplitList(MessageOf(status), '\n')) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) {
      found.push_back({"", line});
    } else {
      found.push_back({line.substr(0, colon), line.substr(colon + 2)});
    }
  }
  return found;
}

absl::Status Report(const Context& context, const Options& options,
                    const std::vector<Mismatch>& found, bool with_database) {
  Json list = Json::array();
  for (const Mismatch& mismatch : found) {
    list.push_back({{"place", mismatch.place}, {"what", mismatch.what}});
  }
  context.Answer({{"file", options.file},
                  {"ok", found.empty()},
                  {"database_checked", with_database},
                  {"mismatches", list}},
                 [&] {
                   for (const Mismatch& mismatch : found) {
                     fmt::print("{}: {}\n", mismatch.place, mismatch.what);
                   }
                   if (found.empty()) {
                     fmt::print("{}: {}\n", options.file,
                                with_database
                                    ? "fits its descriptors and its tables"
                                    : "fits its descriptors (tables: give --database to check)");
                   }
                 });
  if (found.empty()) return absl::OkStatus();
  return FailedPrecondition("{} mismatch{} in {}", found.size(), found.size() == 1 ? "" : "es",
                            options.file);
}

absl::Status Check(const Context& context, const Options& options) {
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

absl::Status Ddl(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const GroupPlan plan, Load(options));
  const std::string ddl = projections::CreateTables(plan);
  context.Answer({{"file", options.file}, {"ddl", ddl}}, [&] { fmt::print("{}", ddl); });
  return absl::OkStatus();
}

Json ToJson(const projections::ExplainedRow& row) {
  Json json = {{"projection", row.projection}, {"table", row.table}, {"operation", row.operation}};
  for (const auto& [column, value] : row.key) json["key"][column] = value;
  for (const auto& [column, value] : row.columns) {
    json["columns"][column] = value.has_value() ? Json(*value) : Json(nullptr);
  }
  json["absent"] = row.absent;
  if (row.guard.has_value()) {
    json["guard"] = row.guard->verdict;
    if (!row.guard->why.empty()) json["why"] = row.guard->why;
    json["stored_version"] =
        row.guard->stored_version.has_value() ? Json(*row.guard->stored_version) : Json(nullptr);
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

void Print(const projections::ExplainedRow& row) {
  fmt::print("  {} {} ({})\n", row.operation, row.table, row.projection);
  for (const auto& [column, value] : row.key) fmt::print("    key {} = {}\n", column, value);
  for (const auto& [column, value] : row.columns) {
    fmt::print("    {} {} {}\n", column, row.operation == "increment" ? "+=" : "=",
               value.value_or("NULL"));
  }
  if (!row.absent.empty()) {
    fmt::print("    absent: {} ({})\n", fmt::join(row.absent, ", "),
               row.operation == "replace" ? "NULL or the column's default" : "stays as it is");
  }
  if (row.guard.has_value()) fmt::print("    guard: {}\n", InWords(*row.guard));
}

// With a database: a session that could not write if it wanted to.
absl::StatusOr<std::unique_ptr<postgres::Connection>> ReadOnly(const Context& context) {
  ASSIGN_OR_RETURN(auto connection, context.Connect());
  RETURN_IF_ERROR(connection->Execute("SET default_transaction_read_only = on").status());
  return connection;
}

absl::Status Explain(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(GroupPlan plan, Load(options));
  const projections::GroupProjector projector(std::move(plan));
  ASSIGN_OR_RETURN(const auto events, projections::ReadEventFile(options.event_file));
  std::unique_ptr<postgres::Connection> connection;
  std::optional<projections::GuardPreview> guards;
  ASSIGN_OR_RETURN(const std::string database, context.Database());
  if (!database.empty()) {
    ASSIGN_OR_RETURN(connection, ReadOnly(context));
    ASSIGN_OR_RETURN(auto opened, projections::GuardPreview::Open(projector.plan(), *connection));
    guards = std::move(opened);
  }
  Json list = Json::array();
  for (const projections::Event& event : events) {
    auto rows = projections::Explain(projector, event);
    if (!rows.ok()) {
      return InvalidArgument("{} {} version {} is poison: {}", event.event_type, event.aggregate.id,
                             event.version, MessageOf(rows.status()));
    }
    bool seen = false;
    if (guards.has_value()) {
      ASSIGN_OR_RETURN(seen, guards->Seen(event));
      // A seen event changes nothing, so what its rows' guards would say does not matter.
      if (!seen) RETURN_IF_ERROR(guards->Judge(event, &*rows));
    }
    Json json_rows = Json::array();
    for (const auto& row : *rows) json_rows.push_back(ToJson(row));
    list.push_back({{"event_type", event.event_type},
                    {"aggregate_id", event.aggregate.id},
                    {"version", event.version},
                    {"rows", json_rows}});
    if (guards.has_value()) list.back()["seen"] = seen;
    if (context.json) continue;
    fmt::print("{} {} version {}{}\n", event.event_type, event.aggregate.id, event.version,
               rows->empty() ? ": ignored"
               : seen        ? ": the inbox has it, would be skipped"
                             : "");
    for (const auto& row : *rows) Print(row);
  }
  context.Answer(list, [] { fmt::print("Nothing was written.\n"); });
  return absl::OkStatus();
}

absl::Status Accept(const Context& context, const Options& options) {
  if (options.state_schema.empty()) {
    return InvalidArgument("say in which schema the service's state is: --state-schema NAME");
  }
  ASSIGN_OR_RETURN(const GroupPlan plan, Load(options));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  if (!context.Confirm(fmt::format(
          "The message fields of group {} are remembered as they are in {} now. Messages of the "
          "old shape that are still in the subscription would be read wrong.",
          plan.group, options.file))) {
    return absl::AbortedError("nothing was changed");
  }
  RETURN_IF_ERROR(projections::RememberFields(plan, *connection));
  context.Answer({{"group", plan.group}, {"fields", plan.fields.size()}},
                 [&] { fmt::print("{} uses of fields remembered\n", plan.fields.size()); });
  return absl::OkStatus();
}

}  // namespace

void AddProjection(const Command& program) {
  const Command projection = program.AddGroup(
      "projection", "check a group's file, print its tables, explain what an event would do");
  const auto options = std::make_shared<Options>();  // outlives this function with the callbacks
  const auto add = [&](const char* name, const char* help,
                       absl::Status (*run)(const Context&, const Options&)) {
    return projection.Add(name, help, [options, run](const Context& c) { return run(c, *options); })
        .Required("file", options->file, "the group's YAML file")
        .Option("--state-schema", options->state_schema, "the schema of the service's state");
  };
  add("check", "compare the file with its descriptors and, given a database, with the live tables",
      Check);
  add("ddl", "print the CREATE TABLE of every projection", Ddl);
  add("explain",
      "print what an event would write and, given a database, what the version guard would say; "
      "writes nothing",
      Explain)
      .Required("event", options->event_file, "a JSON file with the event, or a list of them");
  add("accept", "take renumbered or retyped message fields as they are now", Accept);
}

}  // namespace lockstep::ctl
