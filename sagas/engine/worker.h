#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/retry_policy.h"
#include "postgres/connection.h"
#include "publisher/outbox/enqueue.h"
#include "sagas/engine/decide.h"
#include "sagas/engine/parts.h"
#include "sagas/store/work_store.h"

namespace lockstep::sagas {

// Takes sagas out of the hand, one after another, and carries each on as far as it goes: saves what
// came of calls, decides, saves and begins, until something must be waited for. A thread of its
// own, with a session of its own, on which sql: steps run.
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

  absl::Status Open();
  void CarryOn(const HeldPtr& held);
  // An error is the database's: it is tried again.
  absl::StatusOr<Next> Step(const HeldPtr& held, std::optional<SteadyTime>* look_at);
  absl::StatusOr<bool> Read(Held& held);
  absl::StatusOr<Next> Save(const HeldPtr& held, const Decision& decision);
  absl::StatusOr<Next> Begin(const HeldPtr& held, const Decision& decision,
                             std::optional<SteadyTime>* look_at);
  absl::StatusOr<Next> BeginCalls(const HeldPtr& held, const std::vector<Decision::Begin>& begins,
                                  std::optional<SteadyTime>* look_at);
  Outcome Prepare(const Held& held, const Decision::Begin& begin, const Action& action,
                  const Json& context, StepCall* call, std::optional<http::Request>* request);
  absl::StatusOr<Next> RunSql(const HeldPtr& held, const Decision::Begin& begin, SteadyTime began);
  absl::StatusOr<Next> RunBus(const HeldPtr& held, const Decision::Begin& begin, SteadyTime began);
  absl::Status AskKey(Held& held, int step);
  absl::StatusOr<Next> GiveBack(const HeldPtr& held, std::optional<WallTime> run_at);
  // What came of a try. `step`: as it was tried.
  absl::Status SaveTry(Held& held, const StoredStep& step, const Outcome& outcome, double seconds);
  absl::Status SaveAnswer(Held& held, const CallAnswer& answer);
  void Lose(const HeldPtr& held);
  void Forget(Held& held, int step);
  void Drop(const HeldPtr& held);
  void TellState(const Held& held, SagaState was);

  static StepCall CallFor(const Held& held, int step, bool undo, Json request);
  static StoredStep Beginning(const Held& held, const Decision::Begin& begin);
  static std::optional<SagaState> EndOf(const Held& held, const StoredStep& last);
  static std::string TagOf(const Held& held, int step);
  static publisher::NewEvent EventFor(const Held& held, const Decision::Begin& begin,
                                      const Action& action, const Json& request, int64_t version);

  Engine::Parts& parts_;
  std::unique_ptr<postgres::Connection> session_;
  std::unique_ptr<WorkStore> store_;
  Backoff backoff_{{.max_attempts = 0,
                    .base = Millis(100),
                    .cap = Millis(10'000),
                    .jitter = RetryPolicy::Jitter::kFull}};
  Backoff::Random random_ = Backoff::DefaultRandom();
};

}  // namespace lockstep::sagas
