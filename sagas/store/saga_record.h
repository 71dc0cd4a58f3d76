#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "sagas/definition/definition.h"

namespace lockstep::postgres {
class Row;
}

namespace lockstep::sagas {

// What a saga is at, and a step of it; as they are stored and shown.
enum class SagaState { kRunning, kCompensating, kCompleted, kFailed, kCancelled, kPaused };
enum class StepState { kReady, kInFlight, kSucceeded, kFailed, kCompensated, kSkipped };

std::string_view Name(SagaState state);  // "Running"
std::string_view Name(StepState state);  // "InFlight"
std::optional<SagaState> ParseSagaState(std::string_view name);
std::optional<StepState> ParseStepState(std::string_view name);

// What somebody said became of a step (lockstep.saga_signal).
struct Signal {
  bool succeeded = false;
  Json result;  // null = none
};

// A step as it is stored.
struct StoredStep {
  int step = 0;  // its place in the definition, from 0
  std::string name;
  StepState state = StepState::kReady;
  bool compensating = false;  // its compensation is under way or failed; or it is compensated
  int attempts = 0;           // answers that blame it
  int compensation_attempts = 0;
  std::optional<WallTime> available_at;  // the next try, not before
  std::optional<WallTime> deadline;      // of what is in flight
  bool in_doubt = false;                 // it was begun, and nobody knows what became of it
  bool maybe_done = false;               // an earlier try may have been done: it is undone, too
  Json result;                           // null = none
  std::optional<Signal> signal;
  std::string last_error, error_code;  // empty = none
  std::optional<WallTime> started_at, completed_at, compensated_at;

  int& tries() { return compensating ? compensation_attempts : attempts; }
};

// A saga as it is stored. Times are the database's.
struct StoredSaga {
  std::string id;
  std::string definition;
  int version = 0;
  std::optional<std::string> tenant, key;
  SagaState state = SagaState::kRunning;
  std::optional<SagaState> paused_from;
  bool pause_asked = false;  // by somebody; else a step is in doubt
  bool cancel_asked = false;
  std::string reason;
  Json input;
  std::optional<std::string> traceparent, tracestate;
  std::string error, error_code;   // empty = none
  std::optional<int> failed_step;  // its place
  std::optional<WallTime> deadline;
  WallTime created_at{}, updated_at{};
  std::optional<WallTime> ended_at, dead_at, quarantined_at;
  // Of its lease, while it has not ended.
  std::string owner;               // empty = nobody has it
  std::optional<WallTime> run_at;  // when it is looked at next; nullopt = when it is woken
  std::vector<StoredStep> steps;   // in their order

  bool ended() const {
    return state == SagaState::kCompleted || state == SagaState::kFailed ||
           state == SagaState::kCancelled;
  }
  // For people and scripts: everything but input and results, unless `payloads`.
  Json ToJson(bool payloads = false) const;
};

// What becomes of a saga itself. Empty texts: as they are.
struct SagaChange {
  SagaState state = SagaState::kRunning;
  std::string reason, error, error_code;
  std::optional<int> failed_step;
  bool dead = false;  // a dead letter: it waits for a person
};

// What requests and conditions see: {input, steps: {<name>: result}, saga: {…}}.
Json ContextOf(const StoredSaga& saga);

// The columns that ReadSaga reads, of `s` (sagas) and `w` (saga_work, left joined); `steps` is an
// array of JSON.
extern const char kSagaColumns[];
absl::StatusOr<StoredSaga> ReadSaga(const postgres::Row& row);

}  // namespace lockstep::sagas
