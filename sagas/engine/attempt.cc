#include "sagas/engine/attempt.h"

#include <algorithm>

#include "platform/text.h"
#include "sagas/definition/request_template.h"
#include "sagas/engine/decide.h"

namespace lockstep::sagas {
namespace {

constexpr size_t kErrorBytes = 2'048;

// What jsonb takes: no NUL, and no deeper than anybody means.
bool Storable(const Json& value, int depth) {
  const auto plain = [](const std::string& text) {
    return text.find('\0') == std::string::npos && ValidUtf8(text);
  };
  if (depth > kMaxValueDepth) return false;
  if (value.is_string()) return plain(value.get_ref<const std::string&>());
  if (value.is_binary() || value.is_discarded()) return false;
  if (!value.is_structured()) return true;
  for (const auto& [key, item] : value.items()) {
    if ((value.is_object() && !plain(key)) || !Storable(item, depth + 1)) return false;
  }
  return true;
}

}  // namespace

Json KeptResult(Json result) {
  if (!Storable(result, 1) || result.dump().size() > kMaxResultBytes) return Json();
  return result;
}

StoredStep AfterTry(const StoredStep& step, const Action& action, const Outcome& outcome,
                    WallTime now, int later, double random) {
  StoredStep next = step;
  next.deadline.reset();
  next.available_at.reset();
  if (outcome.kind == Outcome::Kind::kDone) {
    next.state = step.compensating ? StepState::kCompensated : StepState::kSucceeded;
    next.in_doubt = next.maybe_done = false;
    if (!step.compensating) next.result = outcome.result;
    next.last_error.clear();
    next.error_code.clear();
    return next;
  }
  next.last_error = Truncate(outcome.words, kErrorBytes);
  next.error_code = outcome.code;
  // Where it waits for its next try.
  const StepState before = step.compensating ? StepState::kSucceeded : StepState::kReady;
  switch (outcome.kind) {
    case Outcome::Kind::kRefused:
      next.state = StepState::kFailed;
      next.in_doubt = false;
      // That this try was refused says nothing of an earlier one, whose answer was lost.
      if (outcome.certain) next.maybe_done = false;
      break;
    case Outcome::Kind::kFailed:
      ++next.tries();
      if (!outcome.certain && !step.compensating) next.maybe_done = true;
      if (!action.idempotent && !outcome.certain) {
        // Never again by itself.
        next.state = StepState::kInFlight;
        next.in_doubt = true;
        next.error_code = kInDoubtCode;
      } else if (action.retry.Exhausted(next.tries())) {
        next.state = StepState::kFailed;
      } else {
        next.state = before;
        next.available_at = now + std::max(action.retry.Delay(next.tries(), random),
                                           outcome.retry_after.value_or(Millis(0)));
      }
      break;
    case Outcome::Kind::kLater: {
      const RetryPolicy soon{.max_attempts = 0,
                             .base = Millis(50),
                             .factor = 2,
                             .cap = action.retry.cap,
                             .jitter = RetryPolicy::Jitter::kProportional,
                             .jitter_amount = 0.5};
      next.state = before;
      next.available_at = now + soon.Delay(std::max(1, later), random);
      break;
    }
    case Outcome::Kind::kBlocked:
      next.state = before;
      next.available_at = now + action.retry.cap;
      break;
    case Outcome::Kind::kDone:
      break;
  }
  return next;
}

}  // namespace lockstep::sagas
