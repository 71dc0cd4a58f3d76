// lockstepctl saga pause, resume, cancel, compensate, skip, retry, signal, clean.
#include <fmt/format.h>

#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/saga/saga.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::ctl {
namespace {

struct ChangeOptions {
  std::string id, step, reason, outcome, result;
  std::string older_than = "168h", dead_older_than = "0";
  int batch = 1'000;

  sagas::Order order() const { return {.id = id, .actor = OperatorOfThis(), .note = reason}; }
};

// A command on one saga. `asks`: what the operator is told and asked first, with {} for the saga
// and its state; empty = it does no harm. `says`: what it has done.
struct Change {
  std::string_view name, asks, says;
  absl::StatusOr<std::string> (*run)(postgres::Executor&, const ChangeOptions&);
};

absl::Status Apply(const Context& context, const ChangeOptions& options, const Change& change) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  if (!change.asks.empty()) {
    ASSIGN_OR_RETURN(const auto saga, sagas::ShowSaga(*connection, options.id));
    PrintSagas({saga}, stderr);
    RETURN_IF_ERROR(context.Confirm(std::string(change.asks)));
  }
  ASSIGN_OR_RETURN(const std::string was, change.run(*connection, options));
  Json answer = {{"id", options.id}, {"done", change.name}, {"was", was}};
  if (!options.step.empty()) answer["step"] = options.step;
  return context.Answer(answer, [&] { Print("{}: {} (was {})\n", options.id, change.says, was); });
}

absl::Status Pause(const Context& context, const ChangeOptions& options) {
  return Apply(context, options,
               {"pause", "", "paused; what is in flight is recorded, nothing new begins",
                [](postgres::Executor& session, const ChangeOptions& o) {
                  return sagas::PauseSaga(session, o.order());
                }});
}

absl::Status Resume(const Context& context, const ChangeOptions& options) {
  return Apply(context, options,
               {"resume", "", "goes on", [](postgres::Executor& session, const ChangeOptions& o) {
                  return sagas::ResumeSaga(session, o.order());
                }});
}

absl::Status Cancel(const Context& context, const ChangeOptions& options) {
  return Apply(context, options,
               {"cancel", "This undoes what the saga has done, and ends it as Cancelled.",
                "is being undone", [](postgres::Executor& session, const ChangeOptions& o) {
                  return sagas::CancelSaga(session, o.order());
                }});
}

absl::Status Compensate(const Context& context, const ChangeOptions& options) {
  return Apply(context, options,
               {"compensate",
                "This undoes what the saga has done, whether it runs, is dead or is Completed.",
                "is being undone", [](postgres::Executor& session, const ChangeOptions& o) {
                  return sagas::CompensateSaga(session, o.order());
                }});
}

absl::Status Skip(const Context& context, const ChangeOptions& options) {
  return Apply(
      context, options,
      {"skip", "This goes on without the step; while the saga is undone, without its undoing.",
       "goes on without the step", [](postgres::Executor& session, const ChangeOptions& o) {
         return sagas::SkipStep(session, o.order(), o.step);
       }});
}

absl::Status Retry(const Context& context, const ChangeOptions& options) {
  return Apply(context, options,
               {"retry",
                "This tries the step again, now. One in doubt may have been done already: make "
                "sure that it was not, or that it may be done twice.",
                "is tried again", [](postgres::Executor& session, const ChangeOptions& o) {
                  return sagas::RetryStep(session, o.order(), o.step);
                }});
}

absl::Status Signal(const Context& context, const ChangeOptions& options) {
  Json result;
  if (!options.result.empty()) {
    ASSIGN_OR_RETURN(result, ReadJson("--result", options.result));
  }
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  RETURN_IF_ERROR(sagas::ActAs(*connection, OperatorOfThis()));
  ASSIGN_OR_RETURN(const bool counts, sagas::SignalSaga(*connection, options.id, options.step,
                                                        options.outcome == "succeeded", result));
  if (!counts) {
    return FailedPrecondition(
        "the signal came too late: step {} of the saga {} has been decided, or another signal has "
        "said otherwise; lockstepctl saga show {}",
        options.step, options.id, options.id);
  }
  return context.Answer(
      {{"id", options.id}, {"step", options.step}, {"outcome", options.outcome}},
      [&] { Print("{}: step {} is taken as {}\n", options.id, options.step, options.outcome); });
}

absl::Status Clean(const Context& context, const ChangeOptions& options) {
  const auto time = [](const char* option, const std::string& text) -> absl::StatusOr<Millis> {
    const auto parsed = ParseDuration(text);
    if (!parsed.ok()) return InvalidArgument("{}: {}", option, MessageOf(parsed.status()));
    return *parsed;
  };
  ASSIGN_OR_RETURN(const Millis older_than, time("--older-than", options.older_than));
  ASSIGN_OR_RETURN(const Millis dead, time("--dead-older-than", options.dead_older_than));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  RETURN_IF_ERROR(context.Confirm(fmt::format(
      "This deletes what is known of sagas that ended more than {} ago{}.",
      FormatDuration(older_than),
      dead > Millis(0) ? fmt::format(", and of dead ones of more than {}", FormatDuration(dead))
                       : "; dead ones stay")));
  ASSIGN_OR_RETURN(const int64_t gone,
                   sagas::CleanSagas(*connection, older_than, options.batch, dead));
  return context.Answer({{"cleaned", gone}}, [&] { Print("{} sagas are gone\n", gone); });
}

}  // namespace

void AddSagaChanges(const Command& saga) {
  const auto o = std::make_shared<ChangeOptions>();
  const Option id = {"id", &o->id, "the saga", Option::kRequired};
  const Option step = {"step", &o->step, "the step's name", Option::kRequired};
  const Option reason = {"--reason", &o->reason, "for the audit"};
  saga.Add("pause", "begin nothing new; what is in flight is recorded", o, Pause)
      .With({id, reason});
  saga.Add("resume", "go on with a paused one", o, Resume).With({id, reason});
  saga.Add("cancel", "undo what was done, and end as Cancelled", o, Cancel).With({id, reason});
  saga.Add("skip", "go on without a step, or without its undoing", o, Skip)
      .With({id, step, reason});
  saga.Add("retry", "try a step again, now: one in doubt, one that waits for its next try", o,
           Retry)
      .With({id, {"step", &o->step, "the step's name; without it, whichever waits"}, reason});
  saga.Add("compensate", "undo what was done: of one under way, dead, or Completed", o, Compensate)
      .With({id, reason});
  saga.Add("signal", "say what became of a step that waits, or is in doubt", o, Signal)
      .With({id,
             step,
             {"outcome",
              &o->outcome,
              "succeeded or failed",
              Option::kRequired,
              {"succeeded", "failed"}},
             {"--result", &o->result, "JSON, or @FILE: what later steps read"}});
  saga.Add("clean", "delete what is known of sagas that ended long ago", o, Clean)
      .With({{"--older-than", &o->older_than, "how long ago", Option::kShowsDefault},
             {"--dead-older-than", &o->dead_older_than, "dead ones, too; 0 keeps them",
              Option::kShowsDefault},
             {"--batch", &o->batch, "sagas per transaction", Option::kShowsDefault, {}, 100'000}});
}

}  // namespace lockstep::ctl
