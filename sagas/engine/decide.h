#pragma once

#include <optional>
#include <set>
#include <vector>

#include "platform/clock.h"
#include "sagas/definition/definition.h"
#include "sagas/store/saga_record.h"

namespace lockstep::sagas {

// What stands in a step's and a saga's error_code (docs/errors.md).
inline constexpr char kRefusedCode[] = "SAGA.STEP_REFUSED";
inline constexpr char kRefusedByDatabaseCode[] = "SAGA.REFUSED_BY_DATABASE";
inline constexpr char kRequestCode[] = "SAGA.REQUEST_INVALID";
inline constexpr char kInDoubtCode[] = "SAGA.IN_DOUBT";
inline constexpr char kCancelledCode[] = "SAGA.CANCELLED";
inline constexpr char kMisconfiguredCode[] = "SAGA.MISCONFIGURED";
inline constexpr char kTimeoutCode[] = "TX.TIMEOUT";
inline constexpr char kUnavailableCode[] = "PROVIDER.UNAVAILABLE";
inline constexpr char kInternalCode[] = "UNKNOWN.INTERNAL";

// What a saga's holder does next: first saves `steps` and `saga` in one transaction, if there are
// any, and decides anew; else begins what is in `begin`; else rests until `look_at`.
struct Decision {
  struct StepChange {
    StoredStep step;  // as it becomes
    StepState was = StepState::kReady;
  };
  struct Begin {
    int step = 0;
    bool undo = false;
  };
  std::vector<StepChange> steps;
  std::optional<SagaChange> saga;
  std::vector<int> abandoned;  // of `steps`: in flight here, and their answers no longer waited for

  std::vector<Begin> begin;
  std::vector<int> ask_key;         // their idempotency keys tell what became of them
  std::optional<WallTime> look_at;  // nullopt = when somebody wakes it

  bool changes() const { return !steps.empty() || saga.has_value(); }
};

// Pure. `here`: the steps whose calls are under way in this process; another that is in flight is
// an orphan: its orchestrator has died. `now`: the database's time. REQUIRES: the definition is the
// saga's.
Decision Decide(const Definition& definition, const StoredSaga& saga, WallTime now,
                const std::set<int>& here);

// The saga as it is when the decision's changes are saved.
void Apply(const Decision& decision, StoredSaga& saga);

// The action of a step, or of its undoing. REQUIRES: it has one.
const Action& ActionOf(const Definition& definition, int step, bool undo);

}  // namespace lockstep::sagas
