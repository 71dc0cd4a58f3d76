// lockstepctl offsets reset and replay: move a group to another place of its subscription.
#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/command/when.h"
#include "ctl/group/follow_replay.h"
#include "ctl/group/runner_context.h"
#include "offsets/seek_target.h"
#include "operations/reset_plan.h"
#include "platform/status.h"
#include "projections/write/group_projector.h"
#include "pubsub/names.h"

namespace lockstep::ctl {
namespace {

using operations::ResetPlan;
using operations::ResetWish;
using state::SeekTarget;

struct ResetOptions {
  std::string group, time, until, snapshot;
  bool earliest = false, latest = false, empty = false, overwrite = false, accept_missing = false;
  bool follow = false;
};

// What an overwriting replay does to the tables: replaced rows are written again, counted and
// merged ones would not come out the same.
struct Overwriting {
  std::vector<std::string> replaced, counted, merged;
};
Overwriting OverwritingOf(const projections::GroupPlan& plan) {
  Overwriting tables;
  for (const projections::Table& table : plan.tables) {
    auto& list = table.counting ? tables.counted : table.merges ? tables.merged : tables.replaced;
    list.push_back(table.name.ToString());
  }
  return tables;
}

void PrintOverwriting(const std::string& group, const Overwriting& tables, std::FILE* to) {
  if (tables.replaced.empty()) {
    Print(to, "read model  stays; only events that it has not seen are applied\n");
  } else {
    Print(to, "read model  stays; what comes again overwrites its own version in {}\n",
          fmt::join(tables.replaced, ", "));
  }
  if (!tables.merged.empty()) {
    Print(to, "            nothing is merged twice into {}\n", fmt::join(tables.merged, ", "));
  }
  if (!tables.counted.empty()) {
    Print(to, "            nothing is counted twice in {}\n", fmt::join(tables.counted, ", "));
  }
  if (!tables.merged.empty() || !tables.counted.empty()) {
    Print(to,
          "            so what was seen changes nothing there; `lockstepctl rebuild {}` fills them "
          "anew\n",
          group);
  }
}

void PrintPlan(const std::string& group, const ResetPlan& plan, offsets::ResetMode mode,
               const Overwriting& overwriting, std::FILE* to) {
  Print(to, "group       {}\nfrom        {} (epoch {})\nto          {}\n", group,
        plan.offset ? FormatTimestamp(plan.offset->position.publish_time)
                    : "nothing in this epoch yet",
        plan.before.epoch, plan.seek.ToString());
  Print(to, "redelivery  {}\n",
        plan.redelivered < 0 ? "what was not acked when the snapshot was taken, and all since"
                             : fmt::format("about {} events", plan.redelivered));
  Print(to, "retention   {}\n",
        plan.earliest ? fmt::format("reaches back to {}", FormatTimestamp(*plan.earliest))
                      : "could not be read: no right to");
  if (mode == offsets::ResetMode::kKeep) Print(to, "read model  stays; nothing applies twice\n");
  if (mode == offsets::ResetMode::kOverwrite) PrintOverwriting(group, overwriting, to);
  for (const auto& [table, rows] : plan.emptied)
    Print(to, "empties     {} ({} rows)\n", table, rows);
}

Json PlanJson(const std::string& group, const ResetPlan& plan, offsets::ResetMode mode,
              const Overwriting& overwriting) {
  const auto from = plan.offset ? std::optional(plan.offset->position.publish_time) : std::nullopt;
  Json json = {{"group", group},
               {"epoch", plan.before.epoch},
               {"from", OrNull(from)},
               {"to", plan.seek.ToString()},
               {"mode", Name(mode)},
               {"redelivered", plan.redelivered < 0 ? Json(nullptr) : Json(plan.redelivered)},
               {"earliest", OrNull(plan.earliest)},
               {"empties", ListOf(plan.emptied, [](const auto& emptied) -> Json {
                  return {{"table", emptied.first}, {"rows", emptied.second}};
                })}};
  if (mode == offsets::ResetMode::kOverwrite) {
    json["overwrites"] = overwriting.replaced;
    json["unchanged"] = overwriting.merged;
    for (const std::string& table : overwriting.counted) json["unchanged"].push_back(table);
  }
  return json;
}

absl::StatusOr<ResetWish> WishOf(const ResetOptions& options, const runner::RunnerOptions& runner) {
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
  if (!options.time.empty()) {
    ASSIGN_OR_RETURN(const WallTime time, ParseWhen("the time", options.time));
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

absl::Status Reset(const Context& context, const ResetOptions& options) {
  ASSIGN_OR_RETURN(auto runner, OpenGroup(context, options.group));
  ASSIGN_OR_RETURN(const ResetWish wish, WishOf(options, runner.options));
  const ConsumerGroup name(options.group);
  const projections::GroupProjector& projector = *runner.group->declaration->projector;
  const auto tables = projector.AllTables();
  ASSIGN_OR_RETURN(const WallTime now, offsets::CautiousNow(*runner.connection));
  ASSIGN_OR_RETURN(const ResetPlan plan,
                   operations::PlanReset(*runner.connection, runner.schema(), name, tables,
                                         runner.transport->admin(), wish, now));
  const Overwriting overwriting = OverwritingOf(projector.plan());
  Json answer = PlanJson(options.group, plan, wish.mode, overwriting);
  if (!context.json) PrintPlan(options.group, plan, wish.mode, overwriting, context.plan_out());
  std::string what =
      fmt::format("This moves group {}; its runners need not be stopped.", options.group);
  if (wish.mode == offsets::ResetMode::kEmpty) {
    int64_t rows = 0;
    for (const auto& [table, count] : plan.emptied) rows += count;
    what = fmt::format(
        "This deletes {} rows of {} tables; readers find what the replay has brought again.", rows,
        plan.emptied.size());
  }
  RETURN_IF_ERROR(context.Confirm(what, answer));
  offsets::ResetRequest request{.seek = plan.seek,
                                .mode = wish.mode,
                                .tables = tables,
                                .operator_name = OperatorName(),
                                .reason = context.reason,
                                .fence = 2 * runner.group->options.ack_fence,
                                .takeover = runner.group->options.seek_takeover};
  if (!options.until.empty()) {
    ASSIGN_OR_RETURN(request.overwrite_until, ParseWhen("--to", options.until));
  }
  ASSIGN_OR_RETURN(const offsets::ResetDone done,
                   offsets::Resets(runner.schema(), name)
                       .Run(*runner.connection, request, [](const auto& holders) {
                         for (const auto& holder : holders)
                           Print(stderr, "waiting for {}\n", holder);
                       }));
  answer["new_epoch"] = done.epoch;
  RETURN_IF_ERROR(context.Answer(answer, [&] {
    Print(
        "Done: epoch {}. A runner performs the Seek in about {}; with none up, the next one "
        "that starts does.\n",
        done.epoch, FormatDuration(request.fence));
  }));
  if (!options.follow) return absl::OkStatus();
  return FollowReplay(runner, options.group, done.epoch, std::max<int64_t>(plan.redelivered, 0),
                      context.json);
}

}  // namespace

void AddReset(const Command& offsets) {
  const auto o = std::make_shared<ResetOptions>();
  offsets
      .Add("reset",
           "move a group to another place of its subscription, safely while its runners work", o,
           Reset)
      .With({{"group", &o->group, "the consumer group", Option::kRequired},
             {"--to-time", &o->time, kWhenHelp},
             {"--to-snapshot", &o->snapshot, "a Pub/Sub snapshot"},
             {"--to-earliest", &o->earliest, "as far back as retention reaches"},
             {"--to-latest", &o->latest, "leave out everything published until now"},
             {"--empty", &o->empty, "empty the read model's tables first"},
             {"--overwrite", &o->overwrite,
              "what comes again overwrites its own version (replace tables)"},
             {"--accept-missing", &o->accept_missing,
              "empty although not everything can be replayed"},
             {"--follow", &o->follow, "show the progress until caught up"}})
      .Changes(Command::kReasonRequired);
}

void AddReplay(const Command& program) {
  const auto o = std::make_shared<ResetOptions>();
  o->overwrite = o->follow = true;
  program
      .Add("replay", "apply a time range again without emptying; follows it until caught up", o,
           Reset)
      .With({{"group", &o->group, "the consumer group", Option::kRequired},
             {"--from", &o->time, kWhenHelp, Option::kRequired},
             {"--to", &o->until, "until when; none = all that is published now"}})
      .Changes(Command::kReasonRequired);
}

}  // namespace lockstep::ctl
