#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "sagas/definition/definition.h"

// A step as the code that does it sees it. Public: docs/sagas.md.
namespace lockstep::sagas {

struct StepCall {
  std::string saga;  // its id
  std::string definition, step;
  bool compensation = false;
  std::string key;  // <saga>/<step>, of a compensation <saga>/<step>/compensate: the same each try
  Json request;
  std::optional<std::string> tenant, traceparent, tracestate;
};

// Does the step `fn:<name>` and answers its result (null = none). It runs on a thread of the
// engine's own and ends early when the token is stopped: its answer is not waited for any more.
// kInvalidArgument and kFailedPrecondition fail the step for good; any other status, and an
// exception, spends an attempt (of a step that is not idempotent: it is in doubt then, unless the
// status is kUnavailable, which says that nothing was done).
using StepFunction =
    std::function<absl::StatusOr<Json>(const StepCall& call, const std::stop_token& stop)>;

}  // namespace lockstep::sagas
