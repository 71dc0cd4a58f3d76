// lockstepctl saga dead: sagas that failed and could not be undone, or may not be.
#include <fmt/format.h>

#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/saga/saga.h"
#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::ctl {
namespace {

using sagas::StoredSaga;

constexpr int kMost = 10'000;

struct DeadOptions {
  std::vector<std::string> ids;
  std::string id, definition, tenant, reason;
  int limit = 100;
  bool quarantined = false, payloads = false, release = false;
  bool from_failed_step = false, into_compensation = false;

  sagas::SagaFilter filter(int most) const {
    sagas::SagaFilter chosen;
    chosen.definition = definition;
    if (!tenant.empty()) chosen.tenant = tenant;
    chosen.limit = most;
    return chosen;
  }
};

Json SagaJson(const StoredSaga& saga) { return saga.ToJson(); }

absl::Status ListDead(const Context& context, const DeadOptions& options) {
  sagas::SagaFilter filter = options.filter(options.limit);
  (options.quarantined ? filter.quarantined : filter.dead) = true;
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto found, sagas::ListSagas(*connection, filter));
  return context.Answer(ListOf(found, SagaJson), [&] {
    if (found.empty()) return Print("No such dead saga.\n");
    PrintSagas(found, stdout);
    if (static_cast<int>(found.size()) == options.limit) {
      Print("The youngest {}; --limit shows more.\n", options.limit);
    }
  });
}

absl::Status Inspect(const Context& context, const DeadOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const StoredSaga saga, sagas::ShowSaga(*connection, options.id));
  if (!saga.dead_at.has_value()) {
    return FailedPrecondition("the saga {} is {}, not dead; lockstepctl saga show {}", options.id,
                              Name(saga.state), options.id);
  }
  ASSIGN_OR_RETURN(const auto definition,
                   sagas::GetDefinition(*connection, saga.definition, saga.version));
  Json json = saga.ToJson(options.payloads);
  Json done = Json::array();
  for (size_t i = 0; i < saga.steps.size() && i < definition.steps.size(); ++i) {
    const sagas::StoredStep& step = saga.steps[i];
    const bool undone = definition.steps[i].compensate.has_value();
    // Done, or perhaps done; or its undoing has failed.
    const bool stands =
        step.state == sagas::StepState::kSucceeded ||
        (step.state == sagas::StepState::kFailed && (step.maybe_done || step.compensating));
    if (stands && undone) done.push_back(step.name);
  }
  json["would_undo"] = done;
  return context.Answer(json, [&] { PrintMembers(json); });
}

// The dead sagas that are meant: shown, and confirmed. `quarantined`: those in quarantine.
absl::StatusOr<std::vector<StoredSaga>> Choose(const Context& context, postgres::Executor& session,
                                               const DeadOptions& options, bool quarantined,
                                               std::string_view does) {
  std::vector<StoredSaga> chosen;
  if (options.ids.empty() == (options.definition.empty() && options.tenant.empty())) {
    return InvalidArgument(
        "say which dead sagas are meant: their ids, or --definition and --tenant");
  }
  for (const std::string& id : options.ids) {
    ASSIGN_OR_RETURN(StoredSaga saga, sagas::ShowSaga(session, id));
    chosen.push_back(std::move(saga));
  }
  if (options.ids.empty()) {
    sagas::SagaFilter filter = options.filter(kMost);
    (quarantined ? filter.quarantined : filter.dead) = true;
    ASSIGN_OR_RETURN(chosen, sagas::ListSagas(session, filter));
    if (chosen.empty()) return NotFound("there is no such dead saga");
    if (chosen.size() == kMost) {
      Print(stderr, "These are the first {} of more: repeat the command for the rest.\n", kMost);
    }
  }
  PrintSagas(chosen, stderr);
  RETURN_IF_ERROR(context.Confirm(fmt::format("{} {} dead saga(s).", does, chosen.size())));
  return chosen;
}

// One after the other, each in its own transaction; what can't be changed is named, and the others
// are.
template <class Run>
absl::Status ForEach(const Context& context, const std::vector<StoredSaga>& chosen,
                     const char* member, const Run& run) {
  int changed = 0;
  absl::Status first;
  for (const StoredSaga& saga : chosen) {
    const absl::StatusOr<bool> done = run(saga);
    if (done.ok()) {
      changed += *done ? 1 : 0;
      continue;
    }
    if (chosen.size() > 1) Print(stderr, "{}: {}\n", saga.id, MessageOf(done.status()));
    if (first.ok()) first = done.status();
  }
  RETURN_IF_ERROR(context.Answer({{member, changed}}, [&] { Print("{}: {}\n", member, changed); }));
  if (chosen.size() == 1 || first.ok()) return first;
  return absl::Status(first.code(),
                      fmt::format("{} of {} were not changed",
                                  chosen.size() - static_cast<size_t>(changed), chosen.size()));
}

absl::Status Replay(const Context& context, const DeadOptions& options) {
  if (options.from_failed_step == options.into_compensation) {
    return InvalidArgument(
        "say how: --from-failed-step tries the step (or the undoing) that failed once more, "
        "--into-compensation undoes what was done");
  }
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto chosen,
                   Choose(context, *connection, options, /*quarantined=*/false,
                          options.into_compensation ? "This undoes what was done by"
                                                    : "This goes on from the failed step of"));
  const auto into =
      options.into_compensation ? sagas::ReplayInto::kCompensation : sagas::ReplayInto::kFailedStep;
  return ForEach(context, chosen, "replayed", [&](const StoredSaga& saga) -> absl::StatusOr<bool> {
    RETURN_IF_ERROR(
        sagas::ReplaySaga(*connection,
                          {.id = saga.id, .actor = OperatorOfThis(), .note = options.reason}, into)
            .status());
    return true;
  });
}

absl::Status Quarantine(const Context& context, const DeadOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto chosen,
                   Choose(context, *connection, options, /*quarantined=*/options.release,
                          options.release ? "This releases from quarantine"
                                          : "This puts aside, so that no replay takes them,"));
  return ForEach(
      context, chosen, options.release ? "released" : "quarantined", [&](const StoredSaga& saga) {
        return sagas::QuarantineSaga(
            *connection, {.id = saga.id, .actor = OperatorOfThis(), .note = options.reason},
            options.release);
      });
}

}  // namespace

void AddSagaDead(const Command& saga) {
  const Command dead =
      saga.AddGroup("dead", "sagas that failed for good and wait for a person: docs/sagas.md");
  const auto o = std::make_shared<DeadOptions>();
  const std::vector<Option> which = {
      {"id", &o->ids, "the sagas"},
      {"--definition", &o->definition, "all dead ones of this definition"},
      {"--tenant", &o->tenant, "all dead ones of this tenant"},
      {"--reason", &o->reason, "for the audit"}};
  dead.Add("list", "dead sagas, the youngest first", o, ListDead)
      .With({{"--definition", &o->definition, "of this definition alone"},
             {"--tenant", &o->tenant, "of this tenant alone"},
             {"--quarantined", &o->quarantined, "those in quarantine instead"},
             {"--limit", &o->limit, "sagas at most", Option::kShowsDefault, {}, 100'000}});
  dead.Add("inspect", "all that is known of one, and what a replay would undo", o, Inspect)
      .With({{"id", &o->id, "the saga", Option::kRequired},
             {"--payloads", &o->payloads, "its input and the steps' results, too"}});
  dead.Add("replay", "let dead sagas go on, one after the other", o, Replay)
      .With(which)
      .With({{"--from-failed-step", &o->from_failed_step,
              "from the step, or the undoing, that failed"},
             {"--into-compensation", &o->into_compensation, "undo what was done"}});
  dead.Add("quarantine", "keep dead sagas from every replay", o, Quarantine)
      .With(which)
      .With({{"--release", &o->release, "let them be replayed again"}});
}

}  // namespace lockstep::ctl
