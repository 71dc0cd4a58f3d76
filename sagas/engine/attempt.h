#pragma once

#include <optional>
#include <string>

#include "platform/clock.h"
#include "sagas/definition/definition.h"
#include "sagas/store/saga_record.h"

namespace lockstep::sagas {

// How a try of an action, or of an undoing, went.
struct Outcome {
  enum class Kind {
    kDone,
    kRefused,  // for good
    kFailed,   // it spends an attempt
    kLater,    // nobody's fault (a deadlock, a server that restarts): it spends none
    kBlocked,  // a function, a right or a table is missing: it spends none either, and somebody
               // must mend it
  };
  Kind kind = Kind::kDone;
  Json result;              // of kDone; null = none
  std::string code, words;  // of the others. Never a payload
  // Of kFailed: it was certainly not done by this try. Of kRefused: nor by any before.
  bool certain = false;
  std::optional<Millis> retry_after = std::nullopt;

  static Outcome Done(Json result) { return {.kind = Kind::kDone, .result = std::move(result)}; }
  static Outcome Refused(std::string code, std::string words) {
    return {.kind = Kind::kRefused, .code = std::move(code), .words = std::move(words)};
  }
};

// The result as it may be kept: null for what is too large, nested too deep, or no text that the
// database takes (a NUL, bytes that are no UTF-8). The step is done all the same.
Json KeptResult(Json result);

// The step as it is after the try. `later`: how many times in a row it was nobody's fault, this one
// included. `random` is uniform in [0, 1). Pure.
StoredStep AfterTry(const StoredStep& step, const Action& action, const Outcome& outcome,
                    WallTime now, int later, double random);

}  // namespace lockstep::sagas
