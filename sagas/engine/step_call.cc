#include "sagas/engine/step_call.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::sagas {

StepCall CallFor(const Held& held, int step, bool undo, Json request) {
  const std::string& name = held.saga.steps[static_cast<size_t>(step)].name;
  return {.saga = held.id,
          .definition = held.saga.definition,
          .step = name,
          .compensation = undo,
          .key = fmt::format("{}/{}{}", held.id, name, undo ? "/compensate" : ""),
          .request = std::move(request),
          .tenant = held.saga.tenant,
          .traceparent = held.saga.traceparent,
          .tracestate = held.saga.tracestate};
}

StoredStep Beginning(const Held& held, int step, bool undo) {
  StoredStep beginning = held.saga.steps[static_cast<size_t>(step)];
  beginning.compensating = undo;
  beginning.deadline.reset();
  return beginning;
}

}  // namespace lockstep::sagas
