#include "state/positions/offsets.h"

#include "ctl/command/command.h"
#include "ctl/command/print.h"
#include "ctl/command/table.h"
#include "ctl/group/runner_context.h"
#include "platform/status.h"
#include "state/groups/overview.h"

namespace lockstep::ctl {
namespace {

struct OffsetsOptions {
  std::string group, schema;
  int limit = 50;
};

Json Cell(const postgres::Row& row, std::string_view column) {
  return OrNull(row.OptionalText(column));
}

Json TimeCell(const postgres::Row& row, std::string_view column) {
  return row.IsNull(column) ? Json() : Json(FormatTimestamp(row.Time(column)));
}

Json PositionJson(const postgres::Row& row) {
  return {{"group", Cell(row, "group_name")},
          {"epoch", row.Int("epoch")},
          {"slot", row.Int("slot")},
          {"generation", row.Int("generation")},
          {"subscription", Cell(row, "subscription")},
          {"publish_time", TimeCell(row, "publish_time")},
          {"message_id", Cell(row, "message_id")},
          {"lag_ms", OrNull(row.OptionalInt("lag_ms"))},
          {"seek", Cell(row, "seek_state")},
          {"instances", row.Int("instances")}};
}

Json AuditJson(const postgres::Row& row) {
  return {{"at", TimeCell(row, "at")},
          {"action", Cell(row, "action")},
          {"operator", Cell(row, "operator")},
          {"role", Cell(row, "role")},
          {"reason", Cell(row, "reason")},
          {"old", Json::parse(row.Text("old"), nullptr, false)},
          {"new", Json::parse(row.Text("new"), nullptr, false)}};
}

Json LaneJson(const postgres::Row& row) {
  return {{"instance", Cell(row, "instance")},
          {"lane", row.Int("lane")},
          {"subscription", Cell(row, "subscription")},
          {"message_id", Cell(row, "message_id")},
          {"publish_time", TimeCell(row, "publish_time")},
          {"epoch", row.Int("epoch")},
          {"lag_ms", OrNull(row.OptionalInt("lag_ms"))},
          {"updated_at", TimeCell(row, "updated_at")},
          {"updated_by", Cell(row, "updated_by")}};
}

absl::Status ShowOffsets(const Context& context, const OffsetsOptions& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  ASSIGN_OR_RETURN(const auto rows,
                   state::Overview(runner.schema()).Positions(*runner.connection, options.group));
  if (rows.empty() && !options.group.empty()) {
    return NotFound("there is no group '{}' in schema '{}'", options.group,
                    runner.options.state_schema);
  }
  return context.Answer(ListOf(rows, PositionJson), [&] {
    using enum Table::Column::Kind;
    Table table({{"GROUP"},
                 {"EPOCH", kNumber},
                 {"SLOT", kNumber},
                 {"GENERATION", kNumber},
                 {"ALIVE", kNumber},
                 {"POSITION"},
                 {"SUBSCRIPTION"},
                 {"NOTE", kCut}});
    for (const postgres::Row row : rows) {
      const bool none = row.IsNull("publish_time");
      table.Add({row.String("group_name"), row.Int("epoch"), row.Int("slot"), row.Int("generation"),
                 row.Int("instances"),
                 none ? "nothing in this epoch yet" : TextOf(TimeCell(row, "publish_time")),
                 row.String("subscription"),
                 row.Text("seek_state") == "done" ? "" : "its Seek is still to come"});
    }
    table.Print();
  });
}

absl::Status History(const Context& context, const OffsetsOptions& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  ASSIGN_OR_RETURN(const auto rows,
                   state::Overview(runner.schema())
                       .History(*runner.connection, ConsumerGroup(options.group), options.limit));
  return context.Answer(ListOf(rows, AuditJson), [&] {
    if (rows.empty()) return Print("Nobody has moved the offsets of '{}'.\n", options.group);
    using enum Table::Column::Kind;
    Table table({{"AT", kTime}, {"ACTION"}, {"BY"}, {"ROLE"}, {"REASON", kCut}, {"NEW", kCut}});
    for (const postgres::Row row : rows) {
      table.Add({TimeCell(row, "at"), row.String("action"), row.String("operator"),
                 row.String("role"), row.String("reason"), row.String("new")});
    }
    table.Print();
  });
}

absl::Status Export(const Context& context, const OffsetsOptions& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  ASSIGN_OR_RETURN(
      const auto rows,
      state::Offsets(runner.schema()).OfLanes(*runner.connection, ConsumerGroup(options.group)));
  PrintJson({{"group", options.group}, {"offsets", ListOf(rows, LaneJson)}});
  return absl::OkStatus();
}

}  // namespace

void AddOffsets(const Command& program) {
  const auto o = std::make_shared<OffsetsOptions>();
  const Command offsets =
      program.AddGroup("offsets", "look at and move the offsets of consumer groups");
  const auto add = [&](const char* name, const char* help, Option::Need group, auto run) {
    return offsets.Add(name, help, o, run)
        .With({{"group", &o->group, "the consumer group", group},
               {"--schema", &o->schema, "the state schema, where no --config says it"}});
  };
  add("show", "groups, their epochs and positions", Option::kOptional, ShowOffsets);
  add("history", "who moved the offsets, when and why", Option::kRequired, History)
      .With({{"--limit", &o->limit, "the newest so many", Option::kShowsDefault}});
  add("export", "the offsets of every lane, as JSON", Option::kRequired, Export);
  AddReset(offsets);
}

}  // namespace lockstep::ctl
