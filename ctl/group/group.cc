// A consumer group stopped on purpose, and let go on.
#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/group/runner_context.h"
#include "offsets/lock_retry.h"
#include "platform/status.h"
#include "state/events/dead_letters.h"
#include "state/events/key_states.h"
#include "state/events/retention.h"
#include "state/groups/epochs.h"
#include "state/groups/rebuilds.h"

namespace lockstep::ctl {
namespace {

struct GroupCommand {
  std::string group;
  std::string schema;
};

absl::Status Change(const Context& context, const GroupCommand& options, bool pause) {
  ASSIGN_OR_RETURN(const GroupDesk desk, OpenDesk(context, options.group, options.schema));
  const ConsumerGroup name(desk.group);
  const state::Schema schema = desk.runner.schema();
  const state::Epochs epochs(schema, name);
  RETURN_IF_ERROR(epochs.Load(desk.connection()).status());
  const std::string what =
      pause ? fmt::format("Group {} stops: nothing is applied until it is resumed.", desk.group)
            : fmt::format("Group {} goes on where it stopped.", desk.group);
  RETURN_IF_ERROR(context.IsLocal() ? context.Announce(what) : context.Confirm(what));
  bool changed = false;
  const auto tell = [&](const std::vector<std::string>& holders) {
    for (const std::string& holder : holders) Print(stderr, "waiting for {}\n", holder);
  };
  RETURN_IF_ERROR(offsets::WithLockRetry(
      desk.connection(), schema, name, {.on_wait = tell},
      [&](postgres::Transaction& transaction) -> absl::Status {
        ASSIGN_OR_RETURN(changed,
                         pause ? epochs.Pause(transaction, OperatorOfThis(), context.reason)
                               : epochs.Resume(transaction, OperatorOfThis(), context.reason));
        return absl::OkStatus();
      }));
  const Json answer = {{"group", desk.group}, {"paused", pause}, {"changed", changed}};
  return context.Answer(answer, [&] {
    if (!changed) {
      Print("{} {} paused; nothing was changed\n", desk.group, pause ? "is already" : "is not");
    } else if (pause) {
      Print(
          "{0} is paused: nothing more is applied, and no handler is called, until\n  lockstepctl "
          "group resume {0}\n",
          desk.group);
    } else {
      Print("{} goes on\n", desk.group);
    }
  });
}

absl::Status RefuseRemoval(const state::Schema& schema, const ConsumerGroup& name,
                           postgres::Executor& database, postgres::Connection& connection) {
  ASSIGN_OR_RETURN(const auto alive, state::Retention(schema, name).Alive(database));
  if (!alive.empty()) {
    return FailedPrecondition(
        "group '{}' is run by {}: take it out of their configuration and restart them, or the next "
        "one that starts begins it anew. One that was killed counts for a minute",
        name.value(), fmt::join(alive, ", "));
  }
  ASSIGN_OR_RETURN(const auto rebuild, state::Rebuilds(schema, name).Load(connection));
  if (!rebuild) return absl::OkStatus();
  return FailedPrecondition(
      "a rebuild of '{0}' stands: end it first, `lockstepctl rebuild status {0}` says how",
      name.value());
}

// The inbox and what else its generations have, a few rows at a time. Repeated by the next
// `remove`, should it be interrupted.
absl::StatusOr<int64_t> ForgetRows(const state::Retention& retention,
                                   postgres::Connection& connection) {
  constexpr int kAtATime = 10'000;
  int64_t total = 0;
  ASSIGN_OR_RETURN(const auto newest, retention.NewestRetired(connection));
  if (!newest) return total;
  while (true) {
    ASSIGN_OR_RETURN(const int64_t gone,
                     retention.ForgetRows(connection, Clock::System().Now(), Millis(0), kAtATime));
    total += gone;
    if (gone == 0) break;
  }
  RETURN_IF_ERROR(retention.ForgetRetired(connection, *newest));
  return total;
}

absl::Status Remove(const Context& context, const GroupCommand& options) {
  ASSIGN_OR_RETURN(const RunnerContext runner, OpenRunner(context, options.schema));
  const ConsumerGroup name(options.group);
  const state::Schema schema = runner.schema();
  const state::Epochs epochs(schema, name);
  const state::Retention retention(schema, name);
  postgres::Connection& connection = *runner.connection;
  const auto live = epochs.Load(connection);
  if (!live.ok() && !absl::IsNotFound(live.status())) return live.status();
  std::string subscription;
  if (live.ok()) {
    subscription = live->subscription;
    RETURN_IF_ERROR(RefuseRemoval(schema, name, connection, connection));
    ASSIGN_OR_RETURN(const int64_t letters, state::DeadLetters(schema, name).CountOpen(connection));
    ASSIGN_OR_RETURN(const auto waiting, state::KeyStates(schema).CountWaiting(connection, name));
    RETURN_IF_ERROR(
        context.Confirm(fmt::format("This removes group {} for good: its offsets, its inbox, {} "
                                    "open dead letters and {} events "
                                    "that wait. Its tables and its subscription stay.",
                                    name.value(), letters, waiting.events)));
    const auto remove = [&](postgres::Transaction& transaction) -> absl::Status {
      RETURN_IF_ERROR(epochs.LockExclusively(transaction));
      ASSIGN_OR_RETURN(const auto alive, retention.Alive(transaction));
      if (!alive.empty()) {
        return FailedPrecondition("{} has begun to run group '{}' meanwhile",
                                  fmt::join(alive, ", "), name.value());
      }
      return retention.RemoveGroup(transaction, OperatorOfThis(), context.reason);
    };
    RETURN_IF_ERROR(offsets::WithLockRetry(connection, schema, name, {}, remove));
  }
  ASSIGN_OR_RETURN(const int64_t rows, ForgetRows(retention, connection));
  if (!live.ok() && rows == 0) {
    return NotFound("there is no group '{}' in schema '{}'", name.value(),
                    runner.options.state_schema);
  }
  return context.Answer(
      {{"group", name.value()}, {"removed", true}, {"rows", rows}, {"subscription", subscription}},
      [&] {
        Print("{} is gone, with {} rows of its inbox and the like.\n", name.value(), rows);
        if (subscription.empty()) return;
        Print(
            "Its subscription {} goes on keeping messages: take it out of the file of `lockstepctl "
            "provision`, and delete it\n(gcloud pubsub subscriptions delete). Its tables are as "
            "they were.\n",
            subscription);
      });
}

}  // namespace

void AddGroupCommands(const Command& program) {
  const Command group = program.AddGroup(
      "group", "a consumer group as a whole: stopped on purpose, let go on, or removed");
  const auto o = std::make_shared<GroupCommand>();
  const auto add = [&](const char* name, const char* help, bool pause) {
    group.Add(name, help, o, Change, bool(pause))
        .With({{"group", &o->group, "the consumer group", Option::kRequired},
               {"--schema", &o->schema, "the service's state schema; the file's"}})
        .Changes();
  };
  add("pause", "apply nothing and call no handler until it is resumed; nothing is lost", true);
  add("resume", "go on where it stopped", false);
  group
      .Add("remove", "forget it for good, once nobody runs it: `lag` and the alerts too", o, Remove)
      .With({{"group", &o->group, "the consumer group", Option::kRequired},
             {"--schema", &o->schema, "the service's state schema; the file's"}})
      .Changes(Command::kReasonRequired);
}

}  // namespace lockstep::ctl
