#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/retry_policy.h"
#include "sagas/engine/calls.h"
#include "sagas/engine/decide.h"
#include "sagas/engine/parts.h"
#include "sagas/engine/saver.h"
#include "sagas/engine/transactions.h"
#include "sagas/engine/work_session.h"

namespace lockstep::sagas {

// Takes sagas out of the hand, one after another, and carries each on as far as it goes: saves what
// came of calls, decides, saves and begins, until something must be waited for. A thread of its
// own, with a session of its own. Its parts write (Saver) and begin (Calls, Transactions).
class Worker {
 public:
  explicit Worker(Engine::Parts& parts) : parts_(parts) {}

  void Run();

 private:
  using HeldPtr = std::shared_ptr<Held>;
  enum class Next {
    kDecide,  // anew
    kRest,    // in hand
    kOver,    // it is out of our hands
  };

  void CarryOn(const HeldPtr& held);
  // After an error of the database's: the saga is read anew when it is worth a try.
  void PutOff(const HeldPtr& held, const absl::Status& fault);
  // An error is the database's: it is tried again.
  absl::StatusOr<Next> Step(const HeldPtr& held, std::optional<SteadyTime>* look_at);
  absl::StatusOr<bool> Read(Held& held);
  absl::Status NeedDefinition(Held& held);
  absl::StatusOr<Next> Follow(const HeldPtr& held, const Decision& decision,
                              std::optional<SteadyTime>* look_at);
  absl::StatusOr<Next> Settle(Held& held, int step, std::optional<SteadyTime>* look_at);
  absl::StatusOr<Next> Begin(const HeldPtr& held, const Decision& decision,
                             std::optional<SteadyTime>* look_at);
  absl::StatusOr<Next> GiveBack(const HeldPtr& held, std::optional<WallTime> run_at);
  Next OverIfEnded(const HeldPtr& held);
  void Drop(const HeldPtr& held);

  Engine::Parts& parts_;
  WorkSession session_{parts_.options};
  Saver saver_{parts_, session_};
  Calls calls_{parts_, session_, saver_};
  Transactions transactions_{parts_, session_, saver_};
  Backoff backoff_{{.max_attempts = 0,
                    .base = Millis(100),
                    .cap = Millis(10'000),
                    .jitter = RetryPolicy::Jitter::kFull}};
};

}  // namespace lockstep::sagas
