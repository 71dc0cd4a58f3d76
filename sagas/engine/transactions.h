#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "publisher/outbox/enqueue.h"
#include "sagas/engine/decide.h"
#include "sagas/engine/parts.h"
#include "sagas/engine/saver.h"
#include "sagas/engine/work_session.h"

namespace lockstep::sagas {

// Does steps whose effect and whose saving are one transaction: sql: and bus:. Of a worker's
// thread.
class Transactions {
 public:
  Transactions(Engine::Parts& parts, WorkSession& session, Saver& saver)
      : parts_(parts), session_(session), saver_(saver) {}

  // The saga may have ended with it. REQUIRES: it is of these kinds.
  absl::Status Run(Held& held, const Decision::Begin& begin);

 private:
  absl::Status RunSql(Held& held, const Decision::Begin& begin, const Json& request);
  absl::Status RunBus(Held& held, const Decision::Begin& begin, const Json& request);
  // What the try of a step failed with: an outcome that is saved, unless it is to be tried anew.
  absl::Status Failed(Held& held, const StoredStep& step, const absl::Status& fault,
                      SteadyTime began);

  Engine::Parts& parts_;
  WorkSession& session_;
  Saver& saver_;
};

}  // namespace lockstep::sagas
