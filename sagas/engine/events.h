#pragma once

#include <string>

#include "absl/status/status.h"
#include "sagas/engine/attempt.h"
#include "sagas/store/saga_record.h"
#include "sagas/store/work_store.h"

namespace lockstep::sagas {

// What an engine tells as it happens, for metrics, logs and health. From its threads, several at a
// time; must be quick.
class EngineEvents {
 public:
  virtual ~EngineEvents() = default;

  virtual void OnClaimed(const StoredSaga& /*saga*/, Claimed::News /*news*/) {}
  // A try is over and saved. `step`: as it is then; `seconds`: since the try began.
  virtual void OnTry(const StoredSaga& /*saga*/, const StoredStep& /*step*/,
                     const Outcome& /*outcome*/, double /*seconds*/) {}
  // The saga's state was changed; it is as it is then.
  virtual void OnState(const StoredSaga& /*saga*/, SagaState /*was*/) {}
  // Its lease was lost, and what was under way here dropped.
  virtual void OnLost(const std::string& /*saga*/) {}
  // Of its database; OK = it answers again.
  virtual void OnDatabase(const absl::Status& /*status*/) {}
};

}  // namespace lockstep::sagas
