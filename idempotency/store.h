#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"

// Requests that must not be done twice. Public: docs/embedding.md, docs/idempotency.md.
namespace lockstep::idempotency {

// A request that may come again.
struct Request {
  std::optional<std::string> tenant;
  std::string key;   // 1 to 1,024 bytes, unique per tenant
  std::string hash;  // of what is asked for, 1 to 256 bytes: the same key with another is refused
  Millis ttl{24 * 3'600'000};  // how long the answer is kept, at most 366 days
  Millis lease{60'000};        // of a caller that dies at it, at most 24 hours; Renew
  bool retry_failed = false;   // one that failed may be tried again
};

enum class Outcome {
  kGo,        // the key is the caller's: do the work, then Finish or Fail
  kDone,      // it was done: `digest`
  kBusy,      // somebody is at it: come again later
  kFailed,    // it failed: `error`
  kConflict,  // the key belongs to a request with another hash
};
// As SQL answers it: "go", "done", "busy", "failed", "conflict".
std::string_view Name(Outcome outcome);
// TX.IDEMPOTENT_BUSY, TX.IDEMPOTENT_LAST_FAILED, STORAGE.CONFLICT, or empty.
std::string_view Code(Outcome outcome);

struct Answer {
  Outcome outcome = Outcome::kBusy;
  std::optional<std::string> digest;  // kDone, if there is one
  std::string error;                  // kFailed
  std::string token;                  // kGo: by which the caller is known
};

// A key that the caller was given. Without the token it is known in the transaction that took it.
struct Held {
  std::optional<std::string> tenant;
  std::string key;
  std::string token;
};

inline constexpr size_t kMaxDigestBytes = 4'096;
inline constexpr size_t kMaxErrorBytes = 2'048;

// Where keys are kept. One store belongs to one thread, unless its class says otherwise.
class IdempotencyStore {
 public:
  virtual ~IdempotencyStore() = default;

  // Takes the key or says what became of it; waits for nobody. INVALID_ARGUMENT: sizes, TTL, lease.
  virtual absl::StatusOr<Answer> CheckAndPut(const Request& request) = 0;

  // The end of the work. ABORTED: the key is not the caller's any more (its lease ended and
  // another took it, or an operator released it), so that his work must not stand. Once more with
  // the same is OK. INVALID_ARGUMENT: a digest of more than kMaxDigestBytes; an error is cut.
  virtual absl::Status Finish(const Held& held, const std::optional<std::string>& digest) = 0;
  virtual absl::Status Fail(const Held& held, const std::string& error) = 0;

  // The work goes on: the lease begins anew. ABORTED as with Finish.
  virtual absl::Status Renew(const Held& held, Millis lease) = 0;
};

}  // namespace lockstep::idempotency
