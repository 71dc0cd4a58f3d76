#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/http/endpoint.h"
#include "sagas/engine/decide.h"
#include "sagas/engine/parts.h"
#include "sagas/engine/saver.h"
#include "sagas/engine/work_session.h"

namespace lockstep::sagas {

// Begins steps that come to their end elsewhere: http:, fn: and wait. Those that can begin are
// marked in flight in one transaction; when that is durable, and the lease is ours still, the calls
// are made. Of a worker's thread; answers come to the hand.
class Calls {
 public:
  Calls(Engine::Parts& parts, WorkSession& session, Saver& saver)
      : parts_(parts), session_(session), saver_(saver) {}

  // Whether anything was done; false = there is no place for any of them just now.
  absl::StatusOr<bool> Begin(Held& held, const std::vector<Decision::Begin>& begins);

 private:
  struct Call {
    StoredStep step;  // as it becomes
    StepState was = StepState::kReady;
    const Action* action = nullptr;
    StepCall call;
    std::optional<http::Request> request;
    Place tag;
    std::vector<Place> places;  // until its end, also when nobody waits for it any more
  };
  Outcome Prepare(const Held& held, const Json& context, Call& one);
  bool TakePlaces(const Held& held, Call& one);
  absl::Status Mark(Held& held, const std::vector<Call>& calls);
  void Make(Held& held, Call& one);

  Engine::Parts& parts_;
  WorkSession& session_;
  Saver& saver_;
};

}  // namespace lockstep::sagas
