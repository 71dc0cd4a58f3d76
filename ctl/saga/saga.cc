// lockstepctl saga list, show: work that spans services, and how far it is.
#include "ctl/saga/saga.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <iterator>

#include "ctl/command/print.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/connection.h"

namespace lockstep::ctl {
namespace {

using sagas::StoredSaga;
using sagas::StoredStep;

constexpr size_t kReasonWidth = 70;

struct SagaOptions {
  std::string id;
  std::vector<std::string> states;
  std::string tenant;
  sagas::SagaFilter filter;
  bool payloads = false, history = false;
};

// "850ms", "12.4s", "3m20s", "26h"
std::string Took(WallTime from, WallTime to) {
  const auto time = std::max(std::chrono::duration_cast<Millis>(to - from), Millis(0));
  if (time < Millis(1'000)) return fmt::format("{}ms", time.count());
  if (time < Millis(60'000)) return fmt::format("{:.1f}s", static_cast<double>(time.count()) / 1e3);
  return FormatDuration(std::chrono::floor<std::chrono::seconds>(time));
}

std::string Times(const std::optional<WallTime>& time) {
  return time.has_value() ? FormatTimestamp(*time) : "";
}

absl::Status ListSagas(const Context& context, const SagaOptions& options) {
  sagas::SagaFilter filter = options.filter;
  for (const std::string& name : options.states) {
    const auto state = sagas::ParseSagaState(name);
    if (!state.has_value()) return InvalidArgument("--state: '{}' is none", name);
    filter.states.push_back(*state);
  }
  if (!options.tenant.empty()) filter.tenant = options.tenant;
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto found, sagas::ListSagas(*connection, filter));
  const auto json = [](const StoredSaga& saga) { return saga.ToJson(); };
  return context.Answer(ListOf(found, json), [&] {
    if (found.empty()) return Print("No such sagas.\n");
    PrintSagas(found, stdout);
    if (static_cast<int>(found.size()) == filter.limit) {
      Print("The youngest {}; --limit shows more, --after {} older ones.\n", filter.limit,
            found.back().id);
    }
  });
}

// "in doubt; next try 2026-…; HTTP.REFUSED: …"
std::string NoteOf(const StoredStep& step) {
  std::string note;
  const auto add = [&note](const std::string& words) {
    if (!note.empty()) note += "; ";
    note += words;
  };
  if (step.in_doubt) add("in doubt");
  if (step.maybe_done && !step.in_doubt) add("an earlier try may have been done");
  if (step.compensating && step.state != sagas::StepState::kCompensated) add("compensating");
  const bool open = step.state == sagas::StepState::kReady ||
                    step.state == sagas::StepState::kInFlight || step.compensating;
  if (open && step.available_at.has_value()) add("next try " + FormatTimestamp(*step.available_at));
  if (open && step.deadline.has_value()) add("until " + FormatTimestamp(*step.deadline));
  if (step.signal.has_value() && open) {
    add(step.signal->succeeded ? "signalled succeeded" : "signalled failed");
  }
  if (!step.last_error.empty()) {
    add(step.error_code.empty() ? step.last_error
                                : fmt::format("{}: {}", step.error_code, step.last_error));
  }
  return note;
}

// "1", and of a step that was undone or is being undone "1+2".
std::string Attempts(const StoredStep& step) {
  if (step.compensation_attempts == 0) return std::to_string(step.attempts);
  return fmt::format("{}+{}", step.attempts, step.compensation_attempts);
}

std::string StepTook(const StoredStep& step) {
  if (!step.started_at.has_value() || !step.completed_at.has_value()) return "";
  return Took(*step.started_at, *step.completed_at);
}

void PrintSteps(const StoredSaga& saga, const sagas::Definition* definition) {
  size_t names = 4;
  size_t actions = 6;
  std::vector<std::string> shown;
  for (size_t i = 0; i < saga.steps.size(); ++i) {
    shown.push_back(definition != nullptr && i < definition->steps.size()
                        ? Truncate(sagas::ActionText(definition->steps[i].action), 48)
                        : std::string());
    names = std::max(names, saga.steps[i].name.size());
    actions = std::max(actions, shown.back().size());
  }
  Print("\n{:<{}}  {:<{}}  {:<11}  {:>8}  {:<27}  {:>8}  {}\n", "STEP", names, "ACTION", actions,
        "STATE", "ATTEMPTS", "STARTED", "TOOK", "NOTE");
  for (size_t i = 0; i < saga.steps.size(); ++i) {
    const StoredStep& step = saga.steps[i];
    Print("{:<{}}  {:<{}}  {:<11}  {:>8}  {:<27}  {:>8}  {}\n", step.name, names, shown[i], actions,
          Name(step.state), Attempts(step), Times(step.started_at), StepTook(step), NoteOf(step));
  }
}

void PrintHead(const StoredSaga& saga) {
  const auto line = [](const char* name, const std::string& value) {
    if (!value.empty()) Print("{:<10} {}\n", name, value);
  };
  line("saga", saga.id);
  line("definition", fmt::format("{} version {}", saga.definition, saga.version));
  line("state", ShownState(saga));
  line("reason", saga.reason);
  line("tenant", saga.tenant.value_or(""));
  line("key", saga.key.value_or(""));
  if (!saga.error.empty()) {
    const auto at = saga.failed_step;
    const bool named = at.has_value() && *at >= 0 && *at < static_cast<int>(saga.steps.size());
    line("error",
         fmt::format("{}{}{}", named ? saga.steps[static_cast<size_t>(*at)].name + ": " : "",
                     saga.error_code.empty() ? "" : saga.error_code + ": ", saga.error));
  }
  line("started", FormatTimestamp(saga.created_at));
  line("updated", FormatTimestamp(saga.updated_at));
  if (saga.ended_at.has_value()) {
    line("ended", fmt::format("{} (took {})", FormatTimestamp(*saga.ended_at),
                              Took(saga.created_at, *saga.ended_at)));
  } else {
    line("deadline", Times(saga.deadline));
    line("held by", saga.owner);
    line("next", Times(saga.run_at));
  }
  line("dead", Times(saga.dead_at));
  line("quarantine", Times(saga.quarantined_at));
  line("trace", saga.traceparent.value_or(""));
}

Json AuditJson(const sagas::SagaAudit& entry) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"at", FormatTimestamp(entry.at)},
          {"step", or_null(entry.step)},
          {"actor", entry.actor},
          {"role", entry.role},
          {"action", entry.action},
          {"from", or_null(entry.from)},
          {"to", or_null(entry.to)},
          {"attempts", OrNull(entry.attempts)},
          {"note", or_null(entry.note)}};
}

void PrintHistory(const std::vector<sagas::SagaAudit>& history) {
  Print("\n{:<27}  {:<18}  {:<17}  {:<28}  {:<32}  {}\n", "AT", "STEP", "ACTION", "CHANGE", "ACTOR",
        "NOTE");
  for (const sagas::SagaAudit& entry : history) {
    const std::string change =
        entry.from.empty()
            ? entry.to
            : fmt::format("{}{}", entry.from, entry.to.empty() ? "" : " > " + entry.to);
    Print("{:<27}  {:<18}  {:<17}  {:<28}  {:<32}  {}\n", FormatTimestamp(entry.at), entry.step,
          entry.action, change, entry.actor, entry.note);
  }
}

absl::Status ShowSaga(const Context& context, const SagaOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const StoredSaga saga, sagas::ShowSaga(*connection, options.id));
  std::vector<sagas::SagaAudit> history;
  if (options.history) {
    ASSIGN_OR_RETURN(history, sagas::AuditOf(*connection, options.id));
  }
  Json json = saga.ToJson(options.payloads);
  if (options.history) json["history"] = ListOf(history, AuditJson);
  // Only for what the steps do: the saga is shown without it, too.
  const auto definition = sagas::GetDefinition(*connection, saga.definition, saga.version);
  return context.Answer(json, [&] {
    PrintHead(saga);
    PrintSteps(saga, definition.ok() ? &*definition : nullptr);
    if (options.payloads) {
      Print("\n");
      Json payloads = {{"input", saga.input}};
      for (const StoredStep& step : saga.steps) payloads[step.name] = step.result;
      PrintMembers(payloads);
    }
    if (options.history) PrintHistory(history);
  });
}

}  // namespace

std::string ShownState(const StoredSaga& saga) {
  std::string shown(Name(saga.state));
  if (saga.paused_from.has_value()) shown += fmt::format(" (was {})", Name(*saga.paused_from));
  if (saga.quarantined_at.has_value()) return shown + " (dead, in quarantine)";
  if (saga.dead_at.has_value()) return shown + " (dead)";
  if (saga.cancel_asked && !saga.ended()) return shown + " (cancelled)";
  return shown;
}

void PrintSagas(const std::vector<StoredSaga>& sagas, std::FILE* to) {
  const auto widest = [&sagas](const auto& of, size_t least) {
    for (const StoredSaga& saga : sagas) least = std::max(least, of(saga).size());
    return std::min<size_t>(least, 48);
  };
  const auto definition = [](const StoredSaga& saga) {
    return fmt::format("{} v{}", saga.definition, saga.version);
  };
  const auto at = [](const StoredSaga& saga) {
    // Where it is: what runs or has failed, else what is next.
    std::string names;
    for (const StoredStep& step : saga.steps) {
      if (step.state != sagas::StepState::kInFlight && step.state != sagas::StepState::kFailed) {
        continue;
      }
      names += (names.empty() ? "" : ", ") + step.name;
    }
    if (!names.empty() || saga.ended()) return names;
    const auto ready = std::ranges::find(saga.steps, sagas::StepState::kReady, &StoredStep::state);
    return ready == saga.steps.end() ? names : ready->name;
  };
  const size_t wide_definition = widest(definition, 10);
  const size_t wide_state = widest(ShownState, 5);
  const size_t wide_step = widest(at, 4);
  Print(to, "{:<36}  {:<{}}  {:<{}}  {:<{}}  {:<27}  {:<16}  {}\n", "ID", "DEFINITION",
        wide_definition, "STATE", wide_state, "STEP", wide_step, "STARTED", "KEY", "REASON");
  for (const StoredSaga& saga : sagas) {
    Print(to, "{:<36}  {:<{}}  {:<{}}  {:<{}}  {:<27}  {:<16}  {}\n", saga.id, definition(saga),
          wide_definition, ShownState(saga), wide_state, at(saga), wide_step,
          FormatTimestamp(saga.created_at), saga.key.value_or(""),
          Truncate(saga.error.empty() ? saga.reason : saga.error, kReasonWidth));
  }
}

absl::StatusOr<Json> ReadJson(const std::string& option, const std::string& text) {
  std::string json = text;
  if (text == "@-") {
    json.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else if (text.starts_with('@')) {
    ASSIGN_OR_RETURN(json, ReadWholeFile(text.substr(1)));
  }
  Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_discarded()) return parsed;
  return InvalidArgument("{}: this is no JSON; write it as {{\"order_id\": 1}}, or @FILE", option);
}

void AddSaga(const Command& program) {
  const Command saga = program.AddGroup(
      "saga", "work that spans services, and is undone when a step fails: docs/sagas.md");
  AddSagaDefinitions(saga);
  const auto o = std::make_shared<SagaOptions>();
  saga.Add("list", "sagas, the youngest first", o, ListSagas)
      .With({{"--definition", &o->filter.definition, "of this definition alone"},
             {"--state",
              &o->states,
              "in this state; may be repeated",
              Option::kOptional,
              {"Running", "Compensating", "Completed", "Failed", "Cancelled", "Paused"}},
             {"--tenant", &o->tenant, "of this tenant alone"},
             {"--key", &o->filter.key, "started under this key"},
             {"--after", &o->filter.after, "older than this saga: the next page"},
             {"--limit", &o->filter.limit, "sagas at most", Option::kShowsDefault, {}, 100'000}});
  saga.Add("show", "one of them with its steps: states, attempts, times, errors", o, ShowSaga)
      .With({{"id", &o->id, "the saga", Option::kRequired},
             {"--payloads", &o->payloads, "its input and the steps' results, too"},
             {"--history", &o->history, "every change, by whom and when"}});
  AddSagaChanges(saga);
  AddSagaDead(saga);
}

}  // namespace lockstep::ctl
