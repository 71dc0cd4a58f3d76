#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lockstep::publisher {

// What a failed dispatch says about whom. Decided here and nowhere else.
enum class Fault {
  kOutage,     // the bus, or this topic: unreachable, missing, forbidden. Spends no attempt
  kRefused,    // INVALID_ARGUMENT: as kRow, but the second attempt that it spends is the last
  kBehind,     // ABORTED: an earlier row of its key failed
  kCancelled,  // we are stopping
  kKnown,      // ALREADY_EXISTS: the bus has the event already, so it is as good as published
  kRow,        // anything else may blame the row: spends an attempt if others of its topic pass
};

// The code of a row that can't be sent as it is.
inline constexpr std::string_view kRowRefused = "SCHEMA.VALIDATION_FAILED";

Fault FaultOf(const absl::Status& status);

// docs/errors.md: PROVIDER.UNAVAILABLE, TX.TIMEOUT, …
std::string_view ErrorCode(const absl::Status& status);

// What is kept in last_error: the status's code and words, at most `max_bytes` of UTF-8. Any
// stretch of `payload` that the other side quoted is taken out.
std::string ErrorSummary(const absl::Status& status, std::string_view payload, int max_bytes);

}  // namespace lockstep::publisher
