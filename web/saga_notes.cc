#include "web/saga_notes.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "web/note.h"

namespace lockstep::web {
namespace {

using nlohmann::json;

constexpr int kMostSagas = 5;  // dead ones, and paused ones, that get a note of their own

json Dead(const json& saga, const std::string& ctl) {
  const std::string id = TextOf(saga, "id");
  const std::string step = TextOf(saga, "failed_step");
  const auto command = [&](const char* rest) {
    return fmt::format("{} saga dead {}", ctl, fmt::format(fmt::runtime(rest), Quoted(id)));
  };
  std::string detail = step.empty() ? "" : fmt::format("Step {}: ", step);
  for (const char* part : {"error_code", "error"}) {
    if (const std::string text = TextOf(saga, part); !text.empty()) detail += text + " ";
  }
  if (!detail.empty()) detail.pop_back();
  return Note("warning", fmt::format("Saga {} of {} is dead", id, TextOf(saga, "definition")),
              fmt::format("{} It stays as it is until you decide.", Sentence(detail)),
              {{"See its steps, and what a replay would undo", command("inspect {}")},
               {"Once the cause is mended: try what failed again",
                command("replay {} --from-failed-step --reason 'what was mended'")},
               {"Or undo what was done",
                command("replay {} --into-compensation --reason 'why it is undone'")},
               {"Or leave it for good", command("quarantine {} --reason 'why it is left'")}});
}

json Paused(const json& saga, const std::string& ctl) {
  const std::string id = Quoted(TextOf(saga, "id"));
  std::vector<Step> steps = {{"See its steps", fmt::format("{} saga show {}", ctl, id)}};
  const json& in_doubt = PartOf(saga, "in_doubt");
  for (const json& step : in_doubt) {
    const std::string name = Quoted(step.get<std::string>());
    const auto add = [&](const char* what, const char* rest) {
      steps.push_back({fmt::format(fmt::runtime(what), step.get<std::string>()),
                       fmt::format("{} saga {}", ctl, fmt::format(fmt::runtime(rest), id, name))});
    };
    add("If {} was done", "signal {} {} succeeded");
    add("If {} was refused, for good", "signal {} {} failed");
    add("If {} was not done, and may be tried", "retry {} {} --reason 'how you know'");
  }
  if (in_doubt.empty()) {
    steps.push_back({"Let it go on", fmt::format("{} saga resume {}", ctl, id)});
  }
  const std::string reason = TextOf(saga, "reason");
  return Note(
      in_doubt.empty() ? "info" : "warning",
      fmt::format("Saga {} of {} is paused", TextOf(saga, "id"), TextOf(saga, "definition")),
      reason.empty() ? "Somebody has paused it." : Sentence(reason), steps);
}

NoteList::Kind Sagas(const std::string& definition, const std::string& state,
                     const std::string& ctl, std::string cause = {}) {
  return {fmt::format("sagas of {} are {}", definition, state),
          std::move(cause),
          {{"See which, and why", fmt::format("{} saga {} --definition {}", ctl,
                                              state == "dead" ? "dead list" : "list --state Paused",
                                              Quoted(definition))}}};
}

}  // namespace

void SagaNotes(const json& document, const std::string& ctl, NoteList& notes) {
  std::map<std::string, int64_t> dead, paused;  // told of, by definition
  int told_dead = 0, told_paused = 0;
  for (const json& saga : PartOf(document, "waiting")) {
    const bool is_dead = saga.value("dead", false);
    if (++(is_dead ? told_dead : told_paused) > kMostSagas) continue;
    const std::string definition = TextOf(saga, "definition");
    ++(is_dead ? dead : paused)[definition];
    notes.Add(is_dead ? Dead(saga, ctl) : Paused(saga, ctl),
              Sagas(definition, is_dead ? "dead" : "paused", ctl,
                    is_dead ? TextOf(saga, "error_code") : std::string()));
  }
  const auto rest = [&](const json& of, const char* state, int64_t told, const char* severity) {
    const std::string definition = TextOf(of, "definition");
    const int64_t more = IntOf(of, state) - told;
    if (more <= 0) return;
    const NoteList::Kind kind = Sagas(definition, state, ctl);
    notes.More(more,
               Note(severity,
                    more == 1 ? fmt::format("A saga of {} is {}", definition, state)
                              : fmt::format("{} {}", more, kind.many),
                    "They stay as they are until you decide.", kind.steps),
               kind);
  };
  for (const json& of : PartOf(document, "sagas")) {
    const std::string definition = TextOf(of, "definition");
    rest(of, "dead", dead[definition], "warning");
    rest(of, "paused", paused[definition], "warning");
  }
}

}  // namespace lockstep::web
