#include <fmt/format.h>

#include "ctl/command.h"
#include "ctl/group_context.h"
#include "operations/reset_plan.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "pubsub/transport.h"
#include "runner/seek/checkpoint_taker.h"
#include "state/positions/checkpoints.h"

namespace lockstep::ctl {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string group, schema, reason;
  int64_t number = 0;
  bool execute = false;
};

Json ToJson(const state::Checkpoint& checkpoint) {
  return {{"number", checkpoint.number},
          {"snapshot", checkpoint.snapshot},
          {"subscription", checkpoint.subscription},
          {"epoch", checkpoint.epoch},
          {"taken_at", FormatTimestamp(checkpoint.taken_at)},
          {"expires_at",
           checkpoint.expires_at ? Json(FormatTimestamp(*checkpoint.expires_at)) : Json(nullptr)}};
}

absl::Status List(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  const state::Checkpoints checkpoints(runner.schema(), ConsumerGroup(options.group));
  ASSIGN_OR_RETURN(const auto list, checkpoints.List(*runner.connection));
  Json answer = Json::array();
  for (const auto& checkpoint : list) answer.push_back(ToJson(checkpoint));
  context.Answer(answer, [&] {
    if (list.empty()) fmt::print("Group '{}' has no checkpoints.\n", options.group);
    for (const auto& c : list) {
      fmt::print("{:>6}  epoch {:>4}  taken {}  expires {}  {}\n", c.number, c.epoch,
                 FormatTimestamp(c.taken_at),
                 c.expires_at ? FormatTimestamp(*c.expires_at) : "unknown", c.snapshot);
    }
  });
  return absl::OkStatus();
}

absl::Status Create(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(auto runner, OpenConfiguredRunner(context));
  ASSIGN_OR_RETURN(runner::ConfiguredGroup* const group, runner.Group(options.group));
  ASSIGN_OR_RETURN(const auto transport, pubsub::MakeTransport(runner.options.pubsub.transport));
  const state::Schema schema = runner.schema();
  const state::Epochs epochs(schema, ConsumerGroup(options.group));
  ASSIGN_OR_RETURN(const state::GroupEpoch under, epochs.Load(*runner.connection));
  runner::CheckpointTaker taker(
      schema, epochs, transport->admin(),
      {.every = group->options.checkpoint_every, .keep = group->options.checkpoint_keep});
  const auto taken = taker.Take(*runner.connection, under, /*even_if_not_due=*/true);
  if (absl::IsAlreadyExists(taken.status())) {
    return FailedPrecondition(
        "Pub/Sub has a checkpoint that this database does not know: it went "
        "back, and a runner with checkpoints on will heal it");
  }
  if (absl::IsPermissionDenied(taken.status())) {
    return absl::PermissionDeniedError(
        fmt::format("no right to take a snapshot of {}, which needs pubsub.snapshots.create "
                    "(docs/iam.md): {}",
                    under.subscription, MessageOf(taken.status())));
  }
  if (!taken.ok()) return taken.status();
  if (!*taken) return absl::UnavailableError("a runner is taking one right now; try again");
  context.Answer(ToJson(**taken), [&] {
    fmt::print("Checkpoint {}: {}\n", (*taken)->number, (*taken)->snapshot);
    if (!group->options.checkpoints) {
      fmt::print(stderr,
                 "warning: `checkpoints` is off for this group: its runners will not "
                 "recognise a restored database by it\n");
    }
  });
  return absl::OkStatus();
}

absl::Status Restore(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(auto runner, OpenConfiguredRunner(context));
  ASSIGN_OR_RETURN(runner::ConfiguredGroup* const group, runner.Group(options.group));
  const ConsumerGroup name(options.group);
  ASSIGN_OR_RETURN(const auto list,
                   state::Checkpoints(runner.schema(), name).List(*runner.connection));
  const state::Checkpoint* chosen = nullptr;
  for (const auto& checkpoint : list) {
    if (options.number == 0 || checkpoint.number == options.number) {
      chosen = &checkpoint;
      break;
    }
  }
  if (chosen == nullptr) return NotFound("group '{}' has no such checkpoint", options.group);
  ASSIGN_OR_RETURN(const auto transport, pubsub::MakeTransport(runner.options.pubsub.transport));
  ASSIGN_OR_RETURN(
      const operations::ResetPlan plan,
      operations::PlanReset(*runner.connection, runner.schema(), name, {}, transport->admin(),
                            {.target = state::SeekTarget::ToSnapshot(chosen->snapshot)},
                            Clock::System().Now()));
  if (!options.execute) {
    fmt::print(
        "Would seek {} to checkpoint {} of {}: what was not acked then, and all since, comes "
        "again; the inbox absorbs what is known.\nNothing was changed. Repeat with "
        "--execute.\n",
        plan.before.subscription, chosen->number, FormatTimestamp(chosen->taken_at));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const offsets::ResetDone done,
                   offsets::Resets(runner.schema(), name)
                       .Run(*runner.connection, {.seek = plan.seek,
                                                 .skip_before = plan.before.skip_before,
                                                 .operator_name = OperatorName(),
                                                 .reason = options.reason,
                                                 .action = "checkpoint.restored",
                                                 .fence = 2 * group->options.ack_fence,
                                                 .takeover = group->options.seek_takeover}));
  context.Answer({{"epoch", done.epoch}, {"checkpoint", ToJson(*chosen)}},
                 [&] { fmt::print("Done: epoch {}. A runner performs the Seek.\n", done.epoch); });
  return absl::OkStatus();
}

}  // namespace

void AddCheckpoint(const Command& program) {
  const auto options = std::make_shared<Options>();  // outlives this function with the callbacks
  const Command checkpoint = program.AddGroup(
      "checkpoint",
      "Pub/Sub snapshots recorded with the projection, which heal a restored database");
  const auto add = [&](const char* name, const char* help, const Run& run) {
    return checkpoint.Add(name, help, run).Required("group", options->group, "the consumer group");
  };
  add("create", "take one now", [options](const Context& c) { return Create(c, *options); });
  add("list", "the recorded ones, newest first", [options](const Context& c) {
    return List(c, *options);
  }).Option("--schema", options->schema, "the state schema, where no --config says it");
  add("restore", "seek to one: redelivers what was not acked then, and all since",
      [options](const Context& c) { return Restore(c, *options); })
      .Option("number", options->number, "which; none = the newest")
      .Required("--reason", options->reason, "why; goes into the audit")
      .Flag("--execute", options->execute, "do it; without, only show what would be done");
}

}  // namespace lockstep::ctl
