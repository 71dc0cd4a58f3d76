#pragma once

#include "absl/status/status.h"
#include "platform/retry_policy.h"
#include "sagas/engine/decide.h"
#include "sagas/engine/parts.h"
#include "sagas/engine/work_session.h"

namespace lockstep::sagas {

// Writes down what was decided and what came of tries, each in one transaction under the saga's
// lease, then tells of it. What is in memory changes when it is committed. An error is the
// database's, or IsLost. Of a worker's thread.
class Saver {
 public:
  Saver(Engine::Parts& parts, WorkSession& session) : parts_(parts), session_(session) {}

  absl::Status Save(Held& held, const Decision& decision);
  // `step`: as it was tried.
  absl::Status SaveTry(Held& held, const StoredStep& step, const Outcome& outcome, double seconds);
  // Of a call that was under way here; one that nobody waits for any more is let go.
  absl::Status SaveAnswer(Held& held, const CallAnswer& answer);

 private:
  Engine::Parts& parts_;
  WorkSession& session_;
  Backoff::Random random_ = Backoff::DefaultRandom();
};

}  // namespace lockstep::sagas
