#include "fuzz/fuzz_target.h"
#include "fuzz/input_file.h"
#include "platform/status.h"
#include "sagas/definition/definition.h"
#include "sagas/definition/request_template.h"

using lockstep::sagas::Action;
using lockstep::sagas::Definition;
using lockstep::sagas::Json;

namespace {

const Json& Context() {
  static const Json context = Json::parse(R"({
    "input": {"order": "o/1", "total": 5, "items": [{"id": "a"}], "a": {"b": [1, 2.5, null]}},
    "steps": {"a": {"id": "r1"}, "reserve": {"id": ".."}},
    "saga": {"id": "0190", "tenant": null, "key": "k", "definition": "s", "version": 1}})");
  return context;
}

// Filled, or a sentence; within its bounds.
void Fill(const Action& action) {
  const auto request = lockstep::sagas::FillRequest(action.request, Context());
  if (request.ok()) {
    LOCKSTEP_HOLDS(request->dump().size() <= 8 * lockstep::sagas::kMaxRequestBytes);
  } else {
    LOCKSTEP_HOLDS(!lockstep::MessageOf(request.status()).empty());
  }
  if (action.kind != lockstep::sagas::ActionKind::kHttp) return;
  const auto url = lockstep::sagas::FillUrl(action.target, Context());
  // Whom we call is as the definition says it.
  const size_t origin = action.target.find_first_of("/?{", action.target.find("://") + 3);
  if (url.ok()) LOCKSTEP_HOLDS(url->starts_with(action.target.substr(0, origin)));
}

}  // namespace

// The definition of a saga: it loads, is sound, and is the same when the database gives it back; or
// every mistake has a place.
LOCKSTEP_FUZZ_TARGET(saga_yaml) {
  static const lockstep::fuzz::InputFile file{"saga.yaml"};
  file.Write(input);
  const auto definition = lockstep::sagas::LoadDefinition(file.path());
  if (!definition.ok()) {
    LOCKSTEP_HOLDS(lockstep::MessageOf(definition.status()).find(file.path()) != std::string::npos);
    return;
  }
  LOCKSTEP_HOLDS(definition->Validate().ok());
  const auto back = Definition::FromJson(Json::parse(definition->ToJson().dump()));
  LOCKSTEP_HOLDS(back.ok());
  LOCKSTEP_HOLDS(back->Hash() == definition->Hash());
  for (const auto& step : definition->steps) {
    Fill(step.action);
    if (step.compensate.has_value()) Fill(*step.compensate);
  }
}
