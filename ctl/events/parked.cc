// lockstepctl parked list | show | skip: events that wait for a version that has not come.
#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/command/table.h"
#include "ctl/group/runner_context.h"
#include "operations/dead_letters.h"
#include "platform/status.h"
#include "state/events/parking.h"

namespace lockstep::ctl {
namespace {

struct ParkedOptions {
  std::string group, schema, key;
  std::optional<int64_t> to;
  int limit = 100;
};

std::string WhyItWaits(const postgres::Row& row) {
  if (!row.IsNull("dead_letter")) {
    return fmt::format("dead letter {}: {} {}", row.Int("dead_letter"), row.Text("code"),
                       row.Text("reason"));
  }
  return row.IsNull("waits_for") ? ""
                                 : fmt::format("version {} has not come", row.Int("waits_for"));
}

Json KeyJson(const postgres::Row& row) {
  return {{"aggregate", row.String("aggregate_key")},
          {"waiting", row.Int("parked")},
          {"waits_for", OrNull(row.OptionalInt("waits_for"))},
          {"first_waiting", OrNull(row.OptionalInt("first_parked"))},
          {"since", FormatTimestamp(row.Time("since"))},
          {"dead_letter", OrNull(row.OptionalInt("dead_letter"))},
          {"why", WhyItWaits(row)}};
}

absl::Status ListParked(const Context& context, const ParkedOptions& options) {
  ASSIGN_OR_RETURN(const GroupDesk desk, OpenDesk(context, options.group, options.schema));
  ASSIGN_OR_RETURN(const auto rows,
                   state::KeyStates(desk.runner.schema())
                       .ListWaiting(desk.connection(), ConsumerGroup(desk.group), options.limit));
  const Json list = ListOf(rows, KeyJson);
  return context.Answer(list, [&] {
    if (list.empty()) return Print("Nothing of group {} waits.\n", desk.group);
    using enum Table::Column::Kind;
    Table table({{"AGGREGATE"},
                 {"WAITING", kNumber},
                 {"WAITS FOR", kNumber},
                 {"FIRST", kNumber},
                 {"SINCE", kTime},
                 {"WHY", kCut}});
    for (const Json& key : list) {
      table.Add({key["aggregate"], key["waiting"], key["waits_for"], key["first_waiting"],
                 key["since"], key["why"]});
    }
    table.Print();
    if (static_cast<int>(list.size()) == options.limit) {
      Print("The first {}; --limit shows more.\n", options.limit);
    }
  });
}

// What one aggregate waits for, with the events that wait.
absl::StatusOr<Json> ReadKey(const GroupDesk& desk, const ParkedOptions& options) {
  const state::Schema schema = desk.runner.schema();
  const ConsumerGroup group(desk.group);
  ASSIGN_OR_RETURN(const auto rows,
                   state::KeyStates(schema).ListWaiting(desk.connection(), group, 1, options.key));
  if (rows.empty()) {
    return NotFound(
        "nothing of aggregate '{}' waits in group '{}'; lockstepctl parked list shows "
        "what does",
        options.key, desk.group);
  }
  Json key = KeyJson(rows[0]);
  ASSIGN_OR_RETURN(const state::GroupEpoch epoch,
                   state::Epochs(schema, group).Load(desk.connection()));
  ASSIGN_OR_RETURN(
      const auto events,
      state::Parking(schema).List(desk.connection(), epoch.generation, options.key, options.limit));
  key["events"] = ListOf(events, [](const postgres::Row& row) -> Json {
    return {{"version", row.Int("version")},
            {"event_id", row.String("event_id")},
            {"event_type", row.String("event_type")},
            {"message_id", row.String("message_id")},
            {"reason", row.String("reason")},
            {"published_at", FormatTimestamp(row.Time("publish_time"))},
            {"parked_at", FormatTimestamp(row.Time("parked_at"))}};
  });
  return key;
}

void PrintKey(const Json& key, std::FILE* to) {
  Print(to, "{}: {} wait, for version {}, since {}: {}\n", TextOf(key["aggregate"]),
        TextOf(key["waiting"]), TextOf(key["waits_for"]), TextOf(key["since"]), TextOf(key["why"]));
  using enum Table::Column::Kind;
  Table table(
      {{"VERSION", kNumber}, {"EVENT"}, {"TYPE", kCut}, {"REASON", kCut}, {"PARKED", kTime}});
  for (const Json& event : key["events"]) {
    table.Add({event["version"], event["event_id"], event["event_type"], event["reason"],
               event["parked_at"]});
  }
  table.Print(to);
}

absl::Status ShowParked(const Context& context, const ParkedOptions& options) {
  ASSIGN_OR_RETURN(const GroupDesk desk, OpenDesk(context, options.group, options.schema));
  ASSIGN_OR_RETURN(const Json key, ReadKey(desk, options));
  return context.Answer(key, [&] { PrintKey(key, stdout); });
}

absl::Status SkipMissing(const Context& context, const ParkedOptions& options) {
  ASSIGN_OR_RETURN(const GroupDesk desk, OpenDesk(context, options.group, options.schema));
  if (desk.runner.group == nullptr) {
    return InvalidArgument(
        "name the runner's file with --config: its projections are needed to release the waiting "
        "events of '{}'",
        desk.group);
  }
  ASSIGN_OR_RETURN(const Json key, ReadKey(desk, options));
  if (!options.to && key["first_waiting"].is_null()) {
    return FailedPrecondition("no event of {} waits", options.key);
  }
  const int64_t to = options.to ? *options.to : key["first_waiting"].get<int64_t>();
  if (!context.json) PrintKey(key, context.plan_out());
  RETURN_IF_ERROR(context.Confirm(
      fmt::format("Gives up for good the versions of {} that have not come before version {}; what "
                  "waits goes on without them.",
                  options.key, to),
      {{"aggregate", options.key}, {"skipped_to", to}, {"waiting", key["waiting"]}}));
  ASSIGN_OR_RETURN(const std::string database, context.Database());
  operations::DeadLetterResolver resolver(database, desk.runner.schema(),
                                          desk.runner.group->options,
                                          *desk.runner.group->declaration->projector);
  RETURN_IF_ERROR(resolver.Skip({.aggregate_key = options.key,
                                 .to = to,
                                 .operator_name = OperatorOfThis(),
                                 .reason = context.reason}));
  return context.Answer(
      {{"aggregate", options.key},
       {"skipped_to", to},
       {"waited", {{"applied", resolver.applied()}, {"dead", resolver.dead()}}}},
      [&] {
        Print("{} goes on at version {}; of those that waited {} were applied, {} are dead now\n",
              options.key, to, resolver.applied(), resolver.dead());
      });
}

}  // namespace

void AddParked(const Command& program) {
  const Command parked =
      program.AddGroup("parked", "events that wait for a version before them, and what to do");
  const auto o = std::make_shared<ParkedOptions>();
  const auto add = [&](const char* name, const char* help, auto... run) {
    return parked.Add(name, help, o, run...)
        .With({{"--group", &o->group, "the consumer group; the file's only one"},
               {"--schema", &o->schema, "the service's state schema; the file's"}});
  };
  const Option key{"aggregate", &o->key, "as in the list: video/123, video@acme/123",
                   Option::kRequired};
  const Option limit{"--limit", &o->limit, "rows at most", Option::kShowsDefault, {}, 1'000'000};
  add("list", "aggregates that wait, for which version, since when", ListParked).With({limit});
  add("show", "one of them, with the events that wait", ShowParked).With({key, limit});
  add("skip", "give up the versions that never came: what waits goes on without them", SkipMissing)
      .With({key,
             {"--to", &o->to,
              "the version that goes on; those before it that have not come are given up. Without "
              "it, the first that waits"}})
      .Changes(Command::kReasonRequired);
}

}  // namespace lockstep::ctl
