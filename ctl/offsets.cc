#include "state/positions/offsets.h"

#include <fmt/format.h>

#include "ctl/command.h"
#include "ctl/group_context.h"
#include "ctl/progress.h"
#include "ctl/reset_text.h"
#include "offsets/seek_target.h"
#include "operations/reset_plan.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "projections/model/projector.h"
#include "pubsub/names.h"
#include "pubsub/transport.h"
#include "state/groups/overview.h"

namespace lockstep::ctl {
namespace {

using Json = nlohmann::ordered_json;
using state::SeekTarget;

struct Options {
  std::string group;
  std::string schema;
  std::string time, until, snapshot, reason;
  bool earliest = false, latest = false, empty = false, overwrite = false, accept_missing = false;
  bool execute = false, follow = false;
  int limit = 50;
};

Json Cell(const postgres::Row& row, std::string_view column) {
  const auto text = row.OptionalText(column);
  return text ? Json(*text) : Json(nullptr);
}

absl::Status Show(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  ASSIGN_OR_RETURN(const auto rows,
                   state::Overview(runner.schema()).Positions(*runner.connection, options.group));
  if (rows.empty() && !options.group.empty()) {
    return NotFound("there is no group '{}' in schema '{}'", options.group,
                    runner.options.state_schema);
  }
  Json list = Json::array();
  for (const postgres::Row row : rows) {
    const auto lag = row.OptionalInt("lag_ms");
    list.push_back({{"group", Cell(row, "group_name")},
                    {"epoch", row.Int("epoch")},
                    {"slot", row.Int("slot")},
                    {"generation", row.Int("generation")},
                    {"subscription", Cell(row, "subscription")},
                    {"publish_time", Cell(row, "publish_time")},
                    {"message_id", Cell(row, "message_id")},
                    {"lag_ms", lag ? Json(*lag) : Json(nullptr)},
                    {"seek", Cell(row, "seek_state")},
                    {"instances", row.Int("instances")}});
  }
  context.Answer(list, [&] {
    fmt::print("{:<24} {:>6} {:>5} {:>4} {:>6}  {:<29} {}\n", "GROUP", "EPOCH", "SLOT", "GEN",
               "ALIVE", "POSITION", "SUBSCRIPTION");
    for (const postgres::Row row : rows) {
      const bool none = row.IsNull("publish_time");
      fmt::print("{:<24} {:>6} {:>5} {:>4} {:>6}  {:<29} {}{}\n", row.Text("group_name"),
                 row.Int("epoch"), row.Int("slot"), row.Int("generation"), row.Int("instances"),
                 none ? "nothing in this epoch yet" : row.Text("publish_time"),
                 row.Text("subscription"),
                 row.Text("seek_state") == "done" ? "" : "  (its Seek is still to come)");
    }
  });
  return absl::OkStatus();
}

absl::Status History(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  ASSIGN_OR_RETURN(const auto rows,
                   state::Overview(runner.schema())
                       .History(*runner.connection, ConsumerGroup(options.group), options.limit));
  Json list = Json::array();
  for (const postgres::Row row : rows) {
    list.push_back({{"at", Cell(row, "at")},
                    {"action", Cell(row, "action")},
                    {"operator", Cell(row, "operator")},
                    {"reason", Cell(row, "reason")},
                    {"old", Json::parse(row.Text("old"), nullptr, false)},
                    {"new", Json::parse(row.Text("new"), nullptr, false)}});
  }
  context.Answer(list, [&] {
    if (rows.empty()) fmt::print("Nobody has moved the offsets of '{}'.\n", options.group);
    for (const postgres::Row row : rows) {
      fmt::print("{}  {:<19} {:<12} {}\n    new {}\n", row.Text("at"), row.Text("action"),
                 row.Text("operator"), row.Text("reason"), row.Text("new"));
    }
  });
  return absl::OkStatus();
}

absl::Status Export(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  ASSIGN_OR_RETURN(
      const auto rows,
      state::Offsets(runner.schema()).OfLanes(*runner.connection, ConsumerGroup(options.group)));
  Json list = Json::array();
  for (const postgres::Row row : rows) {
    Json lane;
    for (const char* const name : {"instance", "lane", "subscription", "message_id", "publish_time",
                                   "epoch", "lag_ms", "updated_at", "updated_by"}) {
      lane[name] = Cell(row, name);
    }
    list.push_back(std::move(lane));
  }
  fmt::print("{}\n", Json({{"group", options.group}, {"offsets", list}}).dump(2));
  return absl::OkStatus();
}

absl::StatusOr<ResetWish> WishOf(const Options& options, const runner::RunnerOptions& runner) {
  ResetWish wish;
  const int targets = (options.time.empty() ? 0 : 1) + (options.snapshot.empty() ? 0 : 1) +
                      (options.earliest ? 1 : 0) + (options.latest ? 1 : 0);
  if (targets != 1) {
    return InvalidArgument(
        "say where to, once: --to-time T, --to-snapshot S, --to-earliest or --to-latest");
  }
  if (options.empty && options.overwrite) {
    return InvalidArgument("--empty and --overwrite exclude each other");
  }
  if (options.reason.empty())
    return InvalidArgument("say why with --reason: it goes into the audit");
  if (!options.time.empty()) {
    ASSIGN_OR_RETURN(const WallTime time, ParseTimestamp(options.time));
    wish.target = SeekTarget::To(time);
  } else if (!options.snapshot.empty()) {
    wish.target =
        SeekTarget::ToSnapshot(pubsub::SnapshotName(runner.pubsub.project, options.snapshot));
  } else {
    wish.target.kind = options.earliest ? SeekTarget::Kind::kEarliest : SeekTarget::Kind::kLatest;
  }
  if (options.empty) wish.mode = offsets::ResetMode::kEmpty;
  if (options.overwrite) wish.mode = offsets::ResetMode::kOverwrite;
  wish.accept_missing = options.accept_missing;
  wish.emulator = !runner.pubsub.transport.emulator_host.empty();
  return wish;
}

absl::Status Reset(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(auto runner, OpenConfiguredRunner(context));
  ASSIGN_OR_RETURN(runner::ConfiguredGroup* const group, runner.Group(options.group));
  ASSIGN_OR_RETURN(const ResetWish wish, WishOf(options, runner.options));
  ASSIGN_OR_RETURN(const auto transport, pubsub::MakeTransport(runner.options.pubsub.transport));
  const ConsumerGroup name(options.group);
  const projections::Projector& projector = *group->declaration->projector;
  const auto tables = projector.Tables();
  ASSIGN_OR_RETURN(const WallTime now, offsets::CautiousNow(*runner.connection));
  ASSIGN_OR_RETURN(const ResetPlan plan, PlanReset(*runner.connection, runner.schema(), name,
                                                   tables, transport->admin(), wish, now));
  Json answer = PlanJson(options.group, plan, wish.mode, projector);
  if (!context.json) PrintPlan(options.group, plan, wish.mode, projector);
  if (!options.execute) {
    answer["executed"] = false;
    context.Answer(answer, [] { fmt::print("Nothing was changed. Repeat with --execute.\n"); });
    return absl::OkStatus();
  }
  if (!context.IsLocal() && !context.Confirm("This moves a group of a database elsewhere.")) {
    return absl::CancelledError("nothing was changed");
  }
  offsets::ResetRequest request{.seek = plan.seek,
                                .mode = wish.mode,
                                .tables = tables,
                                .operator_name = OperatorName(),
                                .reason = options.reason,
                                .fence = 2 * group->options.ack_fence,
                                .takeover = group->options.seek_takeover};
  if (!options.until.empty()) {
    ASSIGN_OR_RETURN(request.overwrite_until, ParseTimestamp(options.until));
  }
  const offsets::Resets resets(runner.schema(), name);
  ASSIGN_OR_RETURN(const offsets::ResetDone done,
                   resets.Run(*runner.connection, request, [](const auto& holders) {
                     for (const auto& holder : holders)
                       fmt::print(stderr, "waiting for {}\n", holder);
                   }));
  answer["executed"] = true;
  answer["new_epoch"] = done.epoch;
  context.Answer(answer, [&] {
    fmt::print(
        "Done: epoch {}. A runner performs the Seek in about {}; with none up, the next one "
        "that starts does.\n",
        done.epoch, FormatDuration(request.fence));
  });
  if (!options.follow) return absl::OkStatus();
  return FollowReplay(runner, options.group, done.epoch, std::max<int64_t>(plan.redelivered, 0),
                      context.json);
}

void AddTargets(const Command& command, Options& options) {
  command.Required("--reason", options.reason, "why; goes into the audit")
      .Flag("--execute", options.execute, "do it; without, only show what would be done");
}

}  // namespace

void AddOffsets(const Command& program) {
  using Need = Command::Need;
  const auto options = std::make_shared<Options>();  // outlives this function with the callbacks
  const Command offsets =
      program.AddGroup("offsets", "look at and move the offsets of consumer groups");
  const auto add = [&](const char* name, const char* help, Need group, const Run& run) {
    return offsets.Add(name, help, run)
        .Option("group", options->group, "the consumer group", group);
  };
  const auto look = [&](const char* name, const char* help, Need group, const Run& run) {
    return add(name, help, group, run)
        .Option("--schema", options->schema, "the state schema, where no --config says it");
  };
  look("show", "groups, their epochs and positions", Need::kOptional,
       [options](const Context& c) { return Show(c, *options); });
  look("history", "who moved the offsets, when and why", Need::kRequired,
       [options](const Context& c) { return History(c, *options); })
      .WithDefault("--limit", options->limit, "the newest so many");
  look("export", "the offsets of every lane, as JSON", Need::kRequired,
       [options](const Context& c) { return Export(c, *options); });
  const Command reset =
      add("reset",
          "move a group, safely while its runners work; shows what it would do "
          "and acts only with --execute",
          Need::kRequired, [options](const Context& c) { return Reset(c, *options); });
  reset.Option("--to-time", options->time, "RFC 3339, as in 2026-01-31T12:00:00Z")
      .Option("--to-snapshot", options->snapshot, "a Pub/Sub snapshot")
      .Flag("--to-earliest", options->earliest, "as far back as retention reaches")
      .Flag("--to-latest", options->latest, "leave out everything published until now")
      .Flag("--empty", options->empty, "empty the read model's tables first")
      .Flag("--overwrite", options->overwrite,
            "what comes again overwrites its own version (replace tables)")
      .Flag("--accept-missing", options->accept_missing,
            "empty although not everything can be replayed")
      .Flag("--follow", options->follow, "show the progress until caught up");
  AddTargets(reset, *options);
}

void AddReplay(const Command& program) {
  const auto options = std::make_shared<Options>();
  options->overwrite = options->follow = true;
  const Command replay =
      program.Add("replay", "apply a time range again without emptying; follows it until caught up",
                  [options](const Context& c) { return Reset(c, *options); });
  replay.Required("group", options->group, "the consumer group")
      .Required("--from", options->time, "RFC 3339")
      .Option("--to", options->until, "RFC 3339; none = all that is published now");
  AddTargets(replay, *options);
}

}  // namespace lockstep::ctl
