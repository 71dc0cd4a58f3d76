#include <algorithm>

#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/command/table.h"
#include "ctl/group/runner_context.h"
#include "operations/reset_plan.h"
#include "platform/status.h"
#include "runner/seek/checkpoint_taker.h"
#include "state/positions/checkpoints.h"

namespace lockstep::ctl {
namespace {

struct CheckpointOptions {
  std::string group, schema;
  int64_t number = 0;
};

Json CheckpointJson(const state::Checkpoint& checkpoint) {
  return {{"number", checkpoint.number},
          {"snapshot", checkpoint.snapshot},
          {"subscription", checkpoint.subscription},
          {"epoch", checkpoint.epoch},
          {"taken_at", FormatTimestamp(checkpoint.taken_at)},
          {"expires_at", OrNull(checkpoint.expires_at)}};
}

absl::Status List(const Context& context, const CheckpointOptions& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  const state::Checkpoints checkpoints(runner.schema(), ConsumerGroup(options.group));
  ASSIGN_OR_RETURN(const auto list, checkpoints.List(*runner.connection));
  return context.Answer(ListOf(list, CheckpointJson), [&] {
    if (list.empty()) return Print("Group '{}' has no checkpoints.\n", options.group);
    using enum Table::Column::Kind;
    Table table({{"NUMBER", kNumber},
                 {"EPOCH", kNumber},
                 {"TAKEN", kTime},
                 {"EXPIRES", kTime},
                 {"SNAPSHOT"}});
    for (const auto& c : list) {
      table.Add({c.number, c.epoch, FormatTimestamp(c.taken_at), OrNull(c.expires_at), c.snapshot});
    }
    table.Print();
  });
}

absl::Status Create(const Context& context, const CheckpointOptions& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenGroup(context, options.group));
  const runner::GroupOptions& group = runner.group->options;
  const state::Epochs epochs(runner.schema(), ConsumerGroup(options.group));
  ASSIGN_OR_RETURN(const state::GroupEpoch under, epochs.Load(*runner.connection));
  RETURN_IF_ERROR(
      context.Announce(fmt::format("This takes a snapshot of {}.", under.subscription)));
  runner::CheckpointTaker taker(runner.schema(), epochs, runner.transport->admin(),
                                {.every = group.checkpoint_every, .keep = group.checkpoint_keep});
  const auto taken = taker.Take(*runner.connection, under, /*even_if_not_due=*/true);
  if (absl::IsAlreadyExists(taken.status())) {
    return FailedPrecondition(
        "Pub/Sub has a checkpoint that this database does not know: it went "
        "back, and a runner with checkpoints on will heal it");
  }
  if (absl::IsPermissionDenied(taken.status())) {
    return MakeStatus(absl::StatusCode::kPermissionDenied,
                      "no right to take a snapshot of {}, which needs pubsub.snapshots.create "
                      "(docs/iam.md): {}",
                      under.subscription, MessageOf(taken.status()));
  }
  if (!taken.ok()) return taken.status();
  if (!*taken) return absl::UnavailableError("a runner is taking one right now; try again");
  return context.Answer(CheckpointJson(**taken), [&] {
    Print("Checkpoint {}: {}\n", (*taken)->number, (*taken)->snapshot);
    if (!group.checkpoints) {
      Print(stderr,
            "warning: `checkpoints` is off for this group: its runners will not "
            "recognise a restored database by it\n");
    }
  });
}

absl::Status Restore(const Context& context, const CheckpointOptions& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenGroup(context, options.group));
  const ConsumerGroup name(options.group);
  ASSIGN_OR_RETURN(const auto list,
                   state::Checkpoints(runner.schema(), name).List(*runner.connection));
  const auto chosen = std::find_if(list.begin(), list.end(), [&](const auto& checkpoint) {
    return options.number == 0 || checkpoint.number == options.number;
  });
  if (chosen == list.end()) return NotFound("group '{}' has no such checkpoint", options.group);
  ASSIGN_OR_RETURN(
      const operations::ResetPlan plan,
      operations::PlanReset(
          *runner.connection, runner.schema(), name, {}, runner.transport->admin(),
          {.target = state::SeekTarget::ToSnapshot(chosen->snapshot)}, Clock::System().Now()));
  RETURN_IF_ERROR(context.Confirm(
      fmt::format("This seeks {} to checkpoint {} of {}: what was not acked then, and all since, "
                  "comes again; the inbox absorbs what is known.",
                  plan.before.subscription, chosen->number, FormatTimestamp(chosen->taken_at)),
      CheckpointJson(*chosen)));
  ASSIGN_OR_RETURN(const offsets::ResetDone done,
                   offsets::Resets(runner.schema(), name)
                       .Run(*runner.connection, {.seek = plan.seek,
                                                 .skip_before = plan.before.skip_before,
                                                 .operator_name = OperatorName(),
                                                 .reason = context.reason,
                                                 .action = "checkpoint.restored",
                                                 .fence = 2 * runner.group->options.ack_fence,
                                                 .takeover = runner.group->options.seek_takeover}));
  return context.Answer({{"epoch", done.epoch}, {"checkpoint", CheckpointJson(*chosen)}}, [&] {
    Print("Done: epoch {}. A runner performs the Seek.\n", done.epoch);
  });
}

}  // namespace

void AddCheckpoint(const Command& program) {
  const auto o = std::make_shared<CheckpointOptions>();
  const Command checkpoint = program.AddGroup(
      "checkpoint",
      "Pub/Sub snapshots recorded with the projection, which heal a restored database");
  const Option group{"group", &o->group, "the consumer group", Option::kRequired};
  checkpoint.Add("create", "take one now", o, Create).With({group}).Changes(Command::kNoReason);
  checkpoint.Add("list", "the recorded ones, newest first", o, List)
      .With({group, {"--schema", &o->schema, "the state schema, where no --config says it"}});
  checkpoint
      .Add("restore", "seek to one: redelivers what was not acked then, and all since", o, Restore)
      .With({group, {"number", &o->number, "which; none = the newest"}})
      .Changes(Command::kReasonRequired);
}

}  // namespace lockstep::ctl
