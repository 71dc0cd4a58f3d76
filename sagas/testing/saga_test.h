#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sagas/definition/definition.h"
#include "sagas/engine/decide.h"
#include "sagas/store/saga_record.h"

// Definitions and sagas for tests, in few words.
namespace lockstep::sagas::testing {

// "a b! c": a step each; `!` = it has no compensation. kHttp unless `kind` says otherwise;
// idempotent, tried twice.
inline Action Call(ActionKind kind, const std::string& target, bool idempotent = true) {
  Action action;
  action.kind = kind;
  action.target = target;
  action.idempotent = idempotent || kind == ActionKind::kSql || kind == ActionKind::kBus;
  action.retry.max_attempts = 2;
  action.timeout = kind == ActionKind::kWait ? Millis(0) : Millis(10'000);
  return action;
}

inline Step StepOf(const std::string& name, ActionKind kind = ActionKind::kHttp,
                   bool idempotent = true, bool undoable = true) {
  Step step;
  step.name = name;
  step.action = Call(kind, "http://host/" + name, idempotent);
  if (undoable) {
    step.compensate =
        Call(kind == ActionKind::kWait ? ActionKind::kHttp : kind, "http://host/un" + name);
  }
  return step;
}

inline Definition DefinitionOf(std::vector<Step> steps) {
  Definition definition;
  definition.name = "order";
  definition.steps = std::move(steps);
  return definition;
}

inline const WallTime kNow = WallTime(std::chrono::seconds(1'000'000'000));

inline StoredSaga NewSaga(const Definition& definition) {
  StoredSaga saga;
  saga.id = "s";
  saga.definition = definition.name;
  saga.version = definition.version;
  saga.input = Json::object();
  for (size_t i = 0; i < definition.steps.size(); ++i) {
    StoredStep& step = saga.steps.emplace_back();
    step.step = static_cast<int>(i);
    step.name = definition.steps[i].name;
  }
  return saga;
}

}  // namespace lockstep::sagas::testing
