#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runner/message/inbound.h"

namespace lockstep::runner {

// One event that is to be given to one HTTP handler (by its place in Projector::Calls()).
struct OutsideCall {
  const Inbound* item = nullptr;
  uint32_t call = 0;
  bool replay = false;
};

// What a handler answered, or would have.
struct Verdict {
  enum Kind {
    kYes,
    kNo,        // never this event
    kLater,     // the handler is out, or busy: nobody's fault
    kNotBegun,  // the time was over, or one before it did not get its yes
  };
  Kind kind = kNotBegun;
  std::string reason;  // of kNo and kLater, in words, without a value of the answer's body
};

// Why a transaction was rolled back whose events were not all accepted: a fault of a handler, not
// of the database. It goes on with those that were, and comes back to the others.
struct HandlerOutage {
  std::string reason;                 // empty = the time for calls was over, and nothing is wrong
  std::optional<Millis> retry_after;  // what the handler asked for
};

// The way out of a batch: what is called when everything is written and only the COMMIT is left.
// Implementations remember each yes until the batch that it belongs to is through, so that a
// transaction which must be run again calls nobody twice. Used by one thread.
class Outside {
 public:
  virtual ~Outside() = default;

  struct Answers {
    std::vector<Verdict> verdicts;  // call by call
    std::optional<Millis> retry_after;
  };
  // The calls of an aggregate come in the order of its versions, and are made one after the other.
  // `alive` is asked every now and then whether the transaction still holds; its failure is the
  // answer, and no call is begun after it. CANCELLED when the caller was told to stop.
  virtual absl::StatusOr<Answers> Call(std::span<const OutsideCall> calls,
                                       const std::function<absl::Status()>& alive) = 0;

  // What was answered so far has been committed or given back: all of it is forgotten.
  virtual void Forget() = 0;
};

}  // namespace lockstep::runner
